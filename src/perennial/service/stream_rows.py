"""One stream's messages as rows with the columns of the feed."""

import numpy as np

from perennial.protocol.rejections import Malformed
from perennial.protocol.state import StreamState
from perennial.service.feed_rows import Rows
from perennial.service.reading import NOT_A_BOUNDARY, stored_blocks
from perennial.store.blocks import Block
from perennial.store.feedlog import StreamTable
from perennial.store.interface import Store


class StreamPage:
    """Whole messages from `start` on, about `limit` bytes of them, and where they end."""

    def __init__(self, rows: list[Rows], end: int) -> None:
        self.rows = rows
        self.end = end


def read_rows(store: Store, name: str, state: StreamState, start: int, limit: int) -> StreamPage | Malformed:
    rows: list[Rows] = []
    position = start
    for low, high, block in stored_blocks(store, state, start, state.tail):
        if block.start < low and not block.is_boundary(low):
            return NOT_A_BOUNDARY
        first, last = block.message_range(low, min(high, start + limit))
        cut_by_fork = high < block.end and high <= start + limit and not block.is_boundary(high)
        if cut_by_fork or (first >= last and not rows):
            # The part of a message that a fork inherits is a message; and one beyond the limit is a page.
            last += 1
        if first >= last:
            break
        rows.append(_rows(name, state, block, first, last, high))
        position = int(rows[-1].next_offsets[-1])
        if position - start >= limit:
            break
    return StreamPage(rows, position)


def _rows(name: str, state: StreamState, block: Block, first: int, last: int, high: int) -> Rows:
    ends = np.minimum(np.frombuffer(block.ends, "<u4").astype(np.int64), high - block.start)
    starts = np.concatenate(([0], ends[:-1]))[first:last]
    firsts = np.frombuffer(block.firsts, "<u4").astype(np.int64)
    index = np.arange(first, last)
    appends = np.searchsorted(firsts, index, side="right") - 1
    rows = Rows()
    rows.lengths = ends[first:last] - starts
    rows.offsets = block.start + starts
    rows.next_offsets = rows.offsets + rows.lengths
    rows.positions = np.frombuffer(block.positions, "<u8").astype(np.int64)[appends] + index - firsts[appends]
    rows.times = np.frombuffer(block.times, "<u8").astype(np.int64)[appends]
    rows.closed = (rows.next_offsets == state.tail) & block.closes
    rows.is_data = np.ones(len(index), bool)
    rows.keep = None
    rows.streams = np.zeros(len(index), np.uint32)
    rows.table = _table(name, state)
    rows.payload = np.frombuffer(block.payload, "u1")[int(starts[0]) : int(ends[last - 1])]
    return rows


def _table(name: str, state: StreamState) -> StreamTable:
    encoded = np.frombuffer(name.encode(), "u1")
    index = np.zeros(1, np.uint16)
    types = [state.content_type.encode("latin-1")]
    return StreamTable(np.array([state.id], np.uint64), np.array([len(encoded)]), encoded, index, types)
