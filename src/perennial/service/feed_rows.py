"""From entries of the feed log to rows: one per message, and one for a close without data."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from perennial.store.feedlog import CLOSES, POINTER, FeedBlock, Numbers, StreamTable, entry_sizes


class Rows:
    """Messages by column. `payload` holds the messages of all rows, one after another.

    `streams` refers to `table`. `keep` marks the rows that count; None: every one.
    """

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
    keep: Numbers | None
    table: StreamTable


def expand(block: FeedBlock) -> Rows:
    """Entries become rows."""
    rows = Rows()
    rows.payload, rows.table, rows.keep = block.payload, block.table, None
    closes = (block.kinds & CLOSES) > 0
    lengths = block.lengths.astype(np.int64)
    if (block.counts == 1).all():
        # Nearly always; then entries are rows, and nothing needs to be computed.
        rows.positions = block.positions.view("<i8")
        rows.offsets = block.offsets.view("<i8")
        rows.times = block.times.view("<i8")
        rows.lengths = lengths
        rows.streams = block.streams
        rows.closed = closes
        rows.is_data = np.ones(len(block.positions), bool)
    else:
        rows_of = np.maximum(block.counts, 1).astype(np.int64)
        ends = np.cumsum(rows_of)
        first_row = ends - rows_of
        rows.is_data = np.repeat(block.counts > 0, rows_of)
        rows.lengths = np.zeros(len(rows.is_data), np.int64)
        rows.lengths[rows.is_data] = lengths
        starts = np.cumsum(rows.lengths) - rows.lengths
        rows.positions = np.repeat(block.positions.view("<i8") - first_row, rows_of) + np.arange(len(starts))
        rows.offsets = np.repeat(block.offsets.view("<i8") - starts[first_row], rows_of) + starts
        rows.times = np.repeat(block.times.view("<i8"), rows_of)
        rows.closed = np.zeros(len(starts), bool)
        rows.closed[ends - 1] = closes
        rows.streams = np.repeat(block.streams, rows_of)
    rows.next_offsets = rows.offsets + rows.lengths
    return rows


def slices(block: FeedBlock, after: int, until: int, size: int) -> Iterator[FeedBlock]:
    """The entries that may hold positions with after < position <= until, about `size` bytes at a time.

    Where payloads stand elsewhere, a value of one mebibyte may speak of a hundred; a page wants a few.
    """
    positions = block.positions.view("<i8")
    first = max(0, int(np.searchsorted(positions, after + 1, "right")) - 1)
    last = int(np.searchsorted(positions, until, "right"))
    if first >= last:
        return
    sizes = entry_sizes(block)
    filled = np.cumsum(sizes[first:last])
    # Entries are not divided: one that crosses a step belongs to what comes before it.
    crossing = np.searchsorted(filled, np.arange(size, int(filled[-1]), size))
    cuts = (first + 1 + np.unique(crossing)).tolist()
    bounds = [first, *(cut for cut in cuts if cut < last), last]
    if bounds == [0, len(positions)]:
        yield block
        return
    messages = np.concatenate(([0], np.cumsum(block.counts, dtype=np.int64)))
    inlined = np.concatenate(([0], np.cumsum(sizes * ((block.kinds & POINTER) == 0))))
    for start, end in pairwise(bounds):
        part = FeedBlock.__new__(FeedBlock)
        for name in ("positions", "times", "offsets", "streams", "counts", "kinds"):
            setattr(part, name, getattr(block, name)[start:end])
        part.lengths = block.lengths[messages[start] : messages[end]]
        part.payload = block.payload[inlined[start] : inlined[end]]
        part.table = block.table
        yield part
