"""The bucket feed: everything committed to a bucket, in commit order, one row per message.

Positions count the rows of a bucket without holes. A row that a trim or a delete has taken away leaves a
hole behind: that is how a consumer can tell that it missed something.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from perennial.service.buckets import Buckets
from perennial.service.graves import Graves
from perennial.store.feedlog import CLOSES, POINTER, FeedBlock, Numbers, entry_sizes
from perennial.store.interface import Store

END_OF_TIME: Final = (1 << 63) - 1


class Rows:
    """Messages by column. `streams` and `keep` are per row; `table` holds (name, content type) per stream."""

    __slots__ = (
        "closed",
        "is_data",
        "keep",
        "lengths",
        "next_offsets",
        "offsets",
        "payload",
        "positions",
        "streams",
        "table",
        "times",
    )

    positions: Numbers
    offsets: Numbers
    next_offsets: Numbers
    times: Numbers
    closed: Numbers
    is_data: Numbers
    lengths: Numbers
    streams: Numbers
    payload: Numbers
    keep: Numbers
    table: list[tuple[bytes, bytes]]


class StreamFilter:
    """Which streams a reader wants: one by name, or all with a prefix; by default every one."""

    def __init__(self, exact: str | None = None, prefix: str | None = None) -> None:
        self._exact = None if exact is None else exact.encode()
        self._prefix = None if prefix is None else prefix.encode()

    @property
    def wants_all(self) -> bool:
        return self._exact is None and self._prefix is None

    def wants(self, name: bytes) -> bool:
        if self._exact is not None and name != self._exact:
            return False
        return self._prefix is None or name.startswith(self._prefix)


class Feed:
    def __init__(self, store: Store, buckets: Buckets, graves: Graves) -> None:
        self._store = store
        self._buckets = buckets
        self._graves = graves
        self._watchers: dict[str, set[Callable[[], None]]] = {}
        # Told of every bucket whose feed grew; merging of feed values hooks in here.
        self.on_growth: Callable[[str], None] = lambda bucket: None

    def head(self, bucket: str) -> int:
        """The newest durable position; 0 when there is none."""
        return self._buckets.durable_position(bucket) - 1

    def earliest(self, bucket: str) -> int:
        """The position at which the stored feed begins; the next one to come when there is nothing."""
        first = next(self._store.feed(bucket, 0), None)
        return self.head(bucket) + 1 if first is None else first[0]

    def watch(self, bucket: str, changed: Callable[[], None]) -> Callable[[], None]:
        """`changed` is called on growth until the returned function is."""
        watchers = self._watchers.setdefault(bucket, set())
        watchers.add(changed)
        return lambda: watchers.discard(changed)

    def grew(self, bucket: str, position: int) -> None:
        self._buckets.became_durable(bucket, position)
        self.on_growth(bucket)
        for changed in tuple(self._watchers.get(bucket, ())):
            changed()

    def read(self, bucket: str, after: int, until: int, wanted: StreamFilter) -> Iterator[Rows]:
        """Rows with after < position <= until, in order; each step reads one stored value."""
        until = min(until, self.head(bucket))
        graves = self._graves.of(bucket)
        for first, value in self._store.feed(bucket, after + 1):
            if first > until:
                return
            yield self._rows(FeedBlock(value), after, until, graves, wanted)

    def _rows(
        self, block: FeedBlock, after: int, until: int, graves: dict[int, int], wanted: StreamFilter
    ) -> Rows:
        rows = expand(block)
        keep = (rows.positions > after) & (rows.positions <= until)
        if graves:
            limits = np.array([graves.get(stream_id, 0) for stream_id, _, _ in block.table], np.int64)
            keep &= rows.offsets >= limits[rows.streams]
        if not wanted.wants_all:
            keep &= np.array([wanted.wants(name) for _, name, _ in block.table], bool)[rows.streams]
        rows.keep = keep
        if (block.kinds & POINTER).any():
            rows.payload = self._fetch_payload(block, rows)
        return rows

    def _fetch_payload(self, block: FeedBlock, rows: Rows) -> Numbers:
        """Large payloads stand in their streams' blocks; bring them in where the feed points at them."""
        sizes = entry_sizes(block)
        pieces: list[Numbers] = []
        at = 0
        for entry, size in enumerate(sizes.tolist()):
            if not block.kinds[entry] & POINTER:
                pieces.append(block.payload[at : at + size])
                at += size
                continue
            stream_id = block.table[block.streams[entry]][0]
            offset = int(block.offsets[entry])
            data = b"".join(
                stored.cut(offset, offset + size)
                for stored in self._store.blocks(stream_id, offset, offset + size)
            )
            # Gone already, and so are its rows: a grave hides them, only the room they take must be right.
            pieces.append(np.frombuffer(data if len(data) == size else bytes(size), "u1"))
        return np.concatenate(pieces) if pieces else block.payload


def expand(block: FeedBlock) -> Rows:
    """Entries become rows: one per message, and one for a close without data."""
    counts = block.counts.astype(np.int64)
    rows_of = np.maximum(counts, 1)
    entries = np.repeat(np.arange(len(counts)), rows_of)
    first_row = np.cumsum(rows_of) - rows_of
    index = np.arange(len(entries)) - first_row[entries]
    rows = Rows()
    rows.is_data = counts[entries] > 0
    lengths = np.zeros(len(entries), np.int64)
    lengths[rows.is_data] = block.lengths
    starts = np.cumsum(lengths) - lengths
    rows.lengths = lengths
    rows.positions = block.positions.astype(np.int64)[entries] + index
    rows.offsets = block.offsets.astype(np.int64)[entries] + starts - starts[first_row][entries]
    rows.next_offsets = rows.offsets + lengths
    rows.times = block.times.astype(np.int64)[entries]
    rows.closed = ((block.kinds & CLOSES) > 0)[entries] & (index == rows_of[entries] - 1)
    rows.streams = block.streams[entries]
    rows.payload = block.payload
    rows.table = [(name, content_type) for _, name, content_type in block.table]
    return rows
