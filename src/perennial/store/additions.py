"""What a commit adds to a bucket, as columns: its blocks and its feed value are both made of them."""

from collections.abc import Sequence
from itertools import accumulate

TableRow = tuple[int, bytes, bytes]
"""A stream as entries refer to it: id, name, content type."""

Entry = tuple[TableRow, int, bytes, Sequence[int], bool]
"""What one append or close adds: the stream, the offset where it begins, the payload, the messages' ends
relative to it, and whether it closes the stream."""


def table_row(stream_id: int, name: str, content_type: str) -> TableRow:
    """The same for all of a stream's life, so callers keep it."""
    return stream_id, name.encode(), content_type.encode("latin-1")


class Additions:
    """One commit's entries by column. By column and not by entry: this is on every append's path."""

    __slots__ = (
        "closes",
        "counts",
        "ends",
        "next_position",
        "offsets",
        "payloads",
        "positions",
        "rows",
        "single",
        "sizes",
    )

    def __init__(self, entries: Sequence[Entry], first: int) -> None:
        self.rows, self.offsets, self.payloads, self.ends, self.closes = zip(*entries, strict=True)
        self.sizes = list(map(len, self.payloads))
        self.counts = list(map(len, self.ends))
        # Is each of them one message, as most are?
        self.single = self.counts.count(1) == len(entries)
        # In the feed, from `first` on: one is taken per message, and one by a bare close.
        self.positions: Sequence[int] = range(first, first + len(entries))
        self.next_position = first + len(entries)
        if not self.single:
            taken = accumulate([count or 1 for count in self.counts], initial=first)
            *self.positions, self.next_position = taken
