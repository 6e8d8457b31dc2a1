"""Byte ranges and messages out of the store, across the segments a fork inherits."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from perennial.protocol.create import Anchor
from perennial.protocol.media import is_json
from perennial.protocol.rejections import Malformed
from perennial.protocol.state import Inherited, StreamState
from perennial.store.blocks import Block
from perennial.store.errors import StoreCorrupt
from perennial.store.interface import Store

# Small records that have not been sealed are blocks of their own, and each takes about two microseconds.
BLOCKS_PER_CHUNK: Final = 1024

NOT_A_BOUNDARY = Malformed(
    "the offset is not a message boundary of this JSON stream; use offsets the server gave"
)


class Chunk:
    """Consecutive data of a stream. For JSON streams `pieces` are messages, otherwise any cut of bytes."""

    __slots__ = ("end", "pieces", "scattered", "start")

    def __init__(self, start: int, end: int, pieces: list[memoryview], scattered: bool = False) -> None:
        self.start = start
        self.end = end
        self.pieces = pieces
        self.scattered = scattered  # in so many small records that the rest is left for another read


def read_chunk(store: Store, state: StreamState, start: int, limit: int) -> Chunk | Malformed:
    """From `start` on, about `limit` bytes: fewer at the tail and among many small records, more only for one
    large JSON message."""
    if start >= state.tail:
        return Chunk(start, start, [])
    if is_json(state.content_type):
        return _read_messages(store, state, start, limit)
    return _read_bytes(store, state, start, limit)


def anchor_at(store: Store, state: StreamState, position: int) -> Anchor | None:
    """What stands at `position`, for a fork or a snapshot there; None outside what the stream retains."""
    if not state.earliest <= position <= state.tail:
        return None
    if position == state.tail:
        return Anchor(aligned=True, following=())
    _, _, block = next(stored_blocks(store, state, position, position + 1))
    return Anchor(aligned=block.is_boundary(position), following=block.append_after(position))


def messages_between(store: Store, state: StreamState, start: int, end: int) -> Iterator[memoryview]:
    """The messages of [start, end), whole; a message that a fork's base cuts is a message up to the cut."""
    for low, high, block in stored_blocks(store, state, start, end):
        first, last = block.message_range(low, high)
        yield from block.messages(first, last)
        cut_from = max(low, block.start + (block.ends[last - 1] if last else 0))
        if cut_from < min(high, block.end):
            yield block.cut(cut_from, high)


def stored_blocks(store: Store, state: StreamState, start: int, end: int) -> Iterator[tuple[int, int, Block]]:
    """Stored blocks that overlap [start, end), each with the part of the range its segment covers.

    A block of an ancestor may reach beyond the fork's base: what counts are the segment's ends.
    """
    for segment_start, segment_end, segment_id in _segments(state):
        low, high = max(start, segment_start), min(end, segment_end)
        if low >= high:
            continue
        position = low
        for block in store.blocks(segment_id, low, high):
            if block.start > position:
                break
            yield low, high, block
            position = block.end
        if position < high:
            raise StoreCorrupt(f"stream {segment_id} has lost what was at offset {position}")


def _segments(state: StreamState) -> Iterator[tuple[int, int, int]]:
    start = 0
    for segment in (*state.lineage, Inherited(state.id, state.tail)):
        yield start, segment.end, segment.id
        start = segment.end


def _read_bytes(store: Store, state: StreamState, start: int, limit: int) -> Chunk:
    pieces: list[memoryview] = []
    position = start
    blocks = stored_blocks(store, state, start, min(state.tail, start + limit))
    for low, high, block in islice(blocks, BLOCKS_PER_CHUNK):
        pieces.append(block.cut(low, high))
        position = min(high, block.end)
    return Chunk(start, position, pieces, len(pieces) == BLOCKS_PER_CHUNK)


def _read_messages(store: Store, state: StreamState, start: int, limit: int) -> Chunk | Malformed:
    pieces: list[memoryview] = []
    position = start
    count = 0
    blocks = stored_blocks(store, state, start, state.tail)
    for low, high, block in islice(blocks, BLOCKS_PER_CHUNK):
        count += 1
        if block.start < low and not block.is_boundary(low):
            return NOT_A_BOUNDARY
        first, last = block.message_range(low, high)
        for message in block.messages(first, last):
            if pieces and position + len(message) > start + limit:
                return Chunk(start, position, pieces)
            pieces.append(message)
            position += len(message)
    return Chunk(start, position, pieces, count == BLOCKS_PER_CHUNK)
