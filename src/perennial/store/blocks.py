"""Blocks: stored payload with the boundaries of its messages and appends beside it.

A fresh append is a block of its own; sealing merges runs of small ones into blocks of about a mebibyte.
Both have one form, so readers never ask which they hold:

    head       version, closes flag, number of appends, number of messages
    positions  u64 per append: the feed position of its first message
    times      u64 per append: commit time in microseconds
    firsts     u32 per append: the index of its first message
    ends       u32 per message: its end, relative to the block's start
    payload    the messages' bytes, one after another
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Literal

from perennial.store.additions import Additions
from perennial.store.errors import StoreCorrupt

VERSION = 1

_HEAD = struct.Struct("<BBHII")
_SINGLE = struct.Struct("<BBHIIQQII")
# The head of an append of one message that does not close its stream; position and time follow.
_PLAIN = _HEAD.pack(VERSION, False, 0, 1, 1)
_POSITION = slice(_HEAD.size, _HEAD.size + 8)
_TIME = slice(_HEAD.size + 8, _HEAD.size + 16)

_Pieces = Sequence[bytes | memoryview]
# Positions, times, firsts, ends, payloads.
_Columns = tuple[_Pieces, _Pieces, Sequence[int], Sequence[int], _Pieces]


class Block:
    """A decoded block: views into the stored value, made when asked for, nothing copied."""

    __slots__ = ("_appends", "_messages", "_value", "closes", "end", "payload", "start")

    def __init__(self, start: int, value: bytes) -> None:
        if len(value) < _HEAD.size:
            raise StoreCorrupt(f"the block at offset {start} has {len(value)} bytes")
        version, closes, _, appends, messages = _HEAD.unpack_from(value)
        if version != VERSION:
            raise StoreCorrupt(f"the block at offset {start} has unknown version {version}")
        if len(value) < _HEAD.size + 20 * appends + 4 * messages:
            raise StoreCorrupt(f"the block at offset {start} is shorter than its columns")
        # Did the last message close the stream?
        self.closes = bool(closes)
        self._value = memoryview(value)
        self._appends = appends
        self._messages = messages
        self.payload = self._value[_HEAD.size + 20 * appends + 4 * messages :]
        self.start = start
        self.end = start + len(self.payload)

    @property
    def positions(self) -> memoryview:
        return self._column(_HEAD.size, 8 * self._appends, "Q")

    @property
    def times(self) -> memoryview:
        return self._column(_HEAD.size + 8 * self._appends, 8 * self._appends, "Q")

    @property
    def firsts(self) -> memoryview:
        return self._column(_HEAD.size + 16 * self._appends, 4 * self._appends, "I")

    @property
    def ends(self) -> memoryview:
        return self._column(_HEAD.size + 20 * self._appends, 4 * self._messages, "I")

    def _column(self, at: int, size: int, form: Literal["Q", "I"]) -> memoryview:
        return self._value[at : at + size].cast(form)

    def cut(self, start: int, end: int) -> memoryview:
        """The bytes of [start, end), positions in the stream, as far as they lie in this block."""
        return self.payload[max(0, start - self.start) : end - self.start]

    def is_boundary(self, position: int) -> bool:
        """Does a message begin or end at this position of the stream?"""
        relative = position - self.start
        if relative == 0:
            return True
        ends = self.ends
        index = bisect_left(ends, relative)
        return index < len(ends) and ends[index] == relative

    def message_range(self, start: int, end: int) -> tuple[int, int]:
        """Indices [first, last) of the messages that begin at or after `start` and end at or before `end`."""
        relative = start - self.start
        first = 0 if relative <= 0 else bisect_left(self.ends, relative) + 1
        return first, bisect_right(self.ends, end - self.start)

    def messages(self, first: int, last: int) -> Iterator[memoryview]:
        """The messages with indices [first, last)."""
        ends, payload = self.ends, self.payload
        start = ends[first - 1] if first else 0
        for end in ends[first:last]:
            yield payload[start:end]
            start = end

    def append_after(self, position: int) -> list[int]:
        """Ends (positions in the stream) of the messages after `position` in the append there."""
        ends, firsts = self.ends, self.firsts
        index = bisect_right(ends, position - self.start)
        following = bisect_right(firsts, index)
        last = firsts[following] if following < len(firsts) else len(ends)
        return [self.start + end for end in ends[index:last]]


def encode_append(
    position: int, time_us: int, payload: bytes, ends: Sequence[int], closes: bool = False
) -> bytes:
    """One append as a block."""
    count = len(ends)
    if count == 1:
        return _SINGLE.pack(VERSION, closes, 0, 1, 1, position, time_us, 0, ends[0]) + payload
    head = _HEAD.pack(VERSION, closes, 0, 1, count)
    return b"".join((head, struct.pack(f"<QQI{count}I", position, time_us, 0, *ends), payload))


def encode_appends(added: Additions, time_us: int) -> list[tuple[int, int, bytes]]:
    """What has data, as blocks: the stream, the offset and the value."""
    columns = (added.rows, added.offsets, added.positions, added.payloads, added.ends, added.closes)
    return [
        (row[0], offset, encode_append(position, time_us, payload, ends, closes))
        for row, offset, position, payload, ends, closes in zip(*columns, strict=True)
        if payload
    ]


def payload_bytes(offset: int, value: bytes) -> int:
    """Of the encoded block at this offset."""
    if value.startswith(_PLAIN) and len(value) > _SINGLE.size:
        return len(value) - _SINGLE.size
    return len(Block(offset, value).payload)


def merge(values: Sequence[bytes]) -> bytes:
    """The encoded values of adjoining blocks, in order, as one."""
    positions, times, firsts, ends, payloads = _plain_columns(values) or _columns(values)
    head = _HEAD.pack(VERSION, values[-1][1], 0, len(firsts), len(ends))
    numbers = struct.pack(f"<{len(firsts)}I{len(ends)}I", *firsts, *ends)
    return b"".join((head, *positions, *times, numbers, *payloads))


def _columns(values: Sequence[bytes]) -> _Columns:
    positions, times, payloads = [], [], []
    firsts: list[int] = []
    ends: list[int] = []
    size = 0
    for value in values:
        block = Block(size, value)
        positions.append(block.positions)
        times.append(block.times)
        firsts += [len(ends) + first for first in block.firsts]
        ends += [size + end for end in block.ends]
        payloads.append(block.payload)
        size = block.end
    return positions, times, firsts, ends, payloads


def _plain_columns(values: Sequence[bytes]) -> _Columns | None:
    """The same if all are appends of one message, as most are: in a tenth of the time."""
    if not all(value.startswith(_PLAIN) and len(value) > _SINGLE.size for value in values):
        return None
    return (
        [value[_POSITION] for value in values],
        [value[_TIME] for value in values],
        range(len(values)),
        list(accumulate([len(value) - _SINGLE.size for value in values])),
        [value[_SINGLE.size :] for value in values],
    )
