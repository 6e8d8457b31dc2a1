"""Byte ranges and messages out of the store, across the segments a fork inherits."""

from collections.abc import Iterator

from perennial.protocol.create import Anchor
from perennial.protocol.media import is_json
from perennial.protocol.rejections import Malformed
from perennial.protocol.state import Inherited, StreamState
from perennial.store.blocks import Block
from perennial.store.interface import Store

NOT_A_BOUNDARY = Malformed(
    "the offset is not a message boundary of this JSON stream; use offsets the server gave"
)


class Chunk:
    """Consecutive data of a stream. For JSON streams `pieces` are messages, otherwise any cut of bytes."""

    __slots__ = ("end", "pieces", "start")

    def __init__(self, start: int, end: int, pieces: list[memoryview]) -> None:
        self.start = start
        self.end = end
        self.pieces = pieces


def read_chunk(store: Store, state: StreamState, start: int, limit: int) -> Chunk | Malformed:
    """From `start` on, about `limit` bytes: fewer at the tail, more only for one large JSON message."""
    if start >= state.tail:
        return Chunk(start, start, [])
    if is_json(state.content_type):
        return _read_messages(store, state, start, limit)
    return _read_bytes(store, state, start, limit)


def anchor_at(store: Store, state: StreamState, position: int) -> Anchor | None:
    """What stands at `position`, for a fork there; None when the stream does not reach it."""
    if position > state.tail:
        return None
    if position == state.tail:
        return Anchor(aligned=True, following=())
    block = next(blocks_between(store, state, position, position + 1))
    return Anchor(aligned=block.is_boundary(position), following=block.append_after(position))


def blocks_between(store: Store, state: StreamState, start: int, end: int) -> Iterator[Block]:
    """Stored blocks that overlap [start, end). A fork's own blocks follow those it inherits.

    A block of an ancestor may reach beyond the fork's base: cut at the fork's segment ends, not the block's.
    """
    for segment_start, segment_end, segment_id in _segments(state):
        low, high = max(start, segment_start), min(end, segment_end)
        if low < high:
            yield from store.blocks(segment_id, low, high)


def _segments(state: StreamState) -> Iterator[tuple[int, int, int]]:
    start = 0
    for segment in (*state.lineage, Inherited(state.id, state.tail)):
        yield start, segment.end, segment.id
        start = segment.end


def _read_bytes(store: Store, state: StreamState, start: int, limit: int) -> Chunk:
    end = min(state.tail, start + limit)
    pieces = []
    for segment_start, segment_end, segment_id in _segments(state):
        low, high = max(start, segment_start), min(end, segment_end)
        if low < high:
            pieces += [block.cut(low, high) for block in store.blocks(segment_id, low, high)]
    return Chunk(start, end, pieces)


def _read_messages(store: Store, state: StreamState, start: int, limit: int) -> Chunk | Malformed:
    pieces: list[memoryview] = []
    position = start
    for segment_start, segment_end, segment_id in _segments(state):
        low, high = max(position, segment_start), segment_end
        if low >= high:
            continue
        for block in store.blocks(segment_id, low, high):
            if block.start < position and not block.is_boundary(position):
                return NOT_A_BOUNDARY
            first, last = block.message_range(position, high)
            for message in block.messages(first, last):
                if pieces and position + len(message) > start + limit:
                    return Chunk(start, position, pieces)
                pieces.append(message)
                position += len(message)
    return Chunk(start, position, pieces)
