"""The feed log: what each commit added to a bucket, in commit order, laid out by column.

One entry per append or close, so a reader's cost grows with the new data and not with the number of
streams. Small payloads are copied here, so that reading a feed is one sequential scan; payloads of
`INLINE_LIMIT` bytes or more stay in their stream's block only, and the entry points at them: copying
those would double the disk's work for bytes that a single look-up finds quickly.

    head       version, flags, number of entries, of messages, of streams, size of the table
    positions  u64 per entry: the feed position of its first message, or of the close
    times      u64 per entry: commit time in microseconds
    offsets    u64 per entry: where the append begins in its stream
    streams    u32 per entry: index into the table of streams
    counts     u32 per entry: its messages (0: a close without data)
    kinds      u8 per entry: CLOSES, POINTER bits
    lengths    u32 per message
    table      per stream: id, and its name and content type as length-prefixed UTF-8
    payload    the inlined messages' bytes
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perennial.store.errors import StoreCorrupt

VERSION: Final = 1
CLOSES: Final = 1
POINTER: Final = 2
INLINE_LIMIT: Final = 16 * 1024

_HEAD: Final = struct.Struct("<BBHIIII")
_TABLE_ROW = struct.Struct("<QHH")

Numbers = npt.NDArray[Any]


def table_row(stream_id: int, name: str, content_type: str) -> bytes:
    """A stream as entries refer to it; the same for all its life, so callers keep it."""
    name_bytes, type_bytes = name.encode(), content_type.encode("latin-1")
    return _TABLE_ROW.pack(stream_id, len(name_bytes), len(type_bytes)) + name_bytes + type_bytes


class FeedBuilder:
    """Collects one commit's entries for one bucket."""

    __slots__ = (
        "_counts",
        "_indices",
        "_kinds",
        "_lengths",
        "_offsets",
        "_payloads",
        "_positions",
        "_streams",
        "_table",
    )

    def __init__(self) -> None:
        self._indices: dict[int, int] = {}
        self._table: list[bytes] = []
        self._positions: list[int] = []
        self._offsets: list[int] = []
        self._streams: list[int] = []
        self._counts: list[int] = []
        self._kinds = bytearray()
        self._lengths: list[int] = []
        self._payloads: list[bytes] = []

    def add(
        self,
        position: int,
        stream_id: int,
        row: bytes,
        offset: int,
        payload: bytes,
        ends: Sequence[int],
        closes: bool,
    ) -> int:
        """Returns the next free position: one is taken per message, and one by a bare close."""
        index = self._indices.get(stream_id)
        if index is None:
            index = self._indices[stream_id] = len(self._table)
            self._table.append(row)
        self._positions.append(position)
        self._streams.append(index)
        self._offsets.append(offset)
        count = len(ends)
        self._counts.append(count)
        kind = CLOSES if closes else 0
        if len(payload) < INLINE_LIMIT:
            self._payloads.append(payload)
        else:
            kind |= POINTER
        self._kinds.append(kind)
        if count == 1:
            self._lengths.append(ends[0])
        else:
            start = 0
            for end in ends:
                self._lengths.append(end - start)
                start = end
        return position + (count or 1)

    def encode(self, time_us: int) -> bytes:
        entries, messages = len(self._streams), len(self._lengths)
        table = b"".join(self._table)
        return b"".join(
            (
                _HEAD.pack(VERSION, 0, 0, entries, messages, len(self._table), len(table)),
                struct.pack(f"<{entries}Q", *self._positions),
                struct.pack("<Q", time_us) * entries,
                struct.pack(f"<{entries}Q", *self._offsets),
                struct.pack(f"<{entries}I", *self._streams),
                struct.pack(f"<{entries}I", *self._counts),
                bytes(self._kinds),
                struct.pack(f"<{messages}I", *self._lengths),
                table,
                *self._payloads,
            )
        )


class FeedBlock:
    """A decoded feed value: columns as arrays, and the table of streams they refer to."""

    __slots__ = ("counts", "kinds", "lengths", "offsets", "payload", "positions", "streams", "table", "times")

    def __init__(self, value: bytes) -> None:
        version, _, _, entries, messages, streams, table_size = _HEAD.unpack_from(value)
        if version != VERSION:
            raise StoreCorrupt(f"a feed entry has unknown version {version}")
        at = _HEAD.size
        self.positions: Numbers = np.frombuffer(value, "<u8", entries, at)
        at += 8 * entries
        self.times: Numbers = np.frombuffer(value, "<u8", entries, at)
        at += 8 * entries
        self.offsets: Numbers = np.frombuffer(value, "<u8", entries, at)
        at += 8 * entries
        self.streams: Numbers = np.frombuffer(value, "<u4", entries, at)
        at += 4 * entries
        self.counts: Numbers = np.frombuffer(value, "<u4", entries, at)
        at += 4 * entries
        self.kinds: Numbers = np.frombuffer(value, "u1", entries, at)
        at += entries
        self.lengths: Numbers = np.frombuffer(value, "<u4", messages, at)
        at += 4 * messages
        self.table = _parse_table(value, at, streams)
        self.payload: Numbers = np.frombuffer(value, "u1", offset=at + table_size)


def _parse_table(value: bytes, at: int, streams: int) -> list[tuple[int, bytes, bytes]]:
    """(id, name, content type) of each stream."""
    table = []
    for _ in range(streams):
        stream_id, name_size, type_size = _TABLE_ROW.unpack_from(value, at)
        at += _TABLE_ROW.size
        table.append(
            (stream_id, value[at : at + name_size], value[at + name_size : at + name_size + type_size])
        )
        at += name_size + type_size
    return table


def merge(blocks: Sequence[FeedBlock], graves: Mapping[int, int]) -> bytes | None:
    """Consecutive feed values as one, without what lies before graves; None if nothing is left."""
    alive = [without_dead(block, graves) for block in blocks]
    table: dict[int, bytes] = {}
    indices: dict[int, int] = {}
    streams = []
    for block in alive:
        renumbered = np.zeros(len(block.table), np.uint32)
        for index in np.unique(block.streams).tolist():
            stream_id, name, content_type = block.table[index]
            renumbered[index] = indices.setdefault(stream_id, len(indices))
            table[stream_id] = _TABLE_ROW.pack(stream_id, len(name), len(content_type)) + name + content_type
        streams.append(renumbered[block.streams])
    entries = sum(len(block.positions) for block in alive)
    if not entries:
        return None

    def column(name: str) -> bytes:
        return b"".join([getattr(block, name).tobytes() for block in alive])

    lengths = column("lengths")
    rows = b"".join(table.values())
    return b"".join(
        (
            _HEAD.pack(VERSION, 0, 0, entries, len(lengths) // 4, len(table), len(rows)),
            *(column(name) for name in ("positions", "times", "offsets")),
            *(numbers.tobytes() for numbers in streams),
            *(column(name) for name in ("counts", "kinds")),
            lengths,
            rows,
            column("payload"),
        )
    )


def without_dead(block: FeedBlock, graves: Mapping[int, int]) -> FeedBlock:
    """The same value without the messages that lie before their stream's grave."""
    if not any(stream_id in graves for stream_id, _, _ in block.table):
        return block
    limits = np.array([graves.get(stream_id, 0) for stream_id, _, _ in block.table], np.int64)[block.streams]
    offsets, sizes = block.offsets.astype(np.int64), entry_sizes(block)
    entry_of_row = np.repeat(np.arange(len(offsets)), block.counts)
    starts = np.cumsum(block.lengths, dtype=np.int64) - block.lengths
    first_starts = np.cumsum(sizes) - sizes
    row_dead = offsets[entry_of_row] + starts - first_starts[entry_of_row] < limits[entry_of_row]
    dead_rows = np.bincount(entry_of_row, row_dead, len(offsets)).astype(np.int64)
    dead_bytes = np.bincount(entry_of_row, block.lengths * row_dead, len(offsets)).astype(np.int64)
    # A close without data stands at the end of what a trim removes and survives it, but not a deletion.
    alive = np.where(block.counts > 0, dead_rows < block.counts, offsets >= limits)
    kept = FeedBlock.__new__(FeedBlock)
    kept.positions = (block.positions + dead_rows.astype("<u8"))[alive]
    kept.times = block.times[alive]
    kept.offsets = (block.offsets + dead_bytes.astype("<u8"))[alive]
    kept.streams = block.streams[alive]
    kept.counts = (block.counts - dead_rows.astype("<u4"))[alive]
    kept.kinds = block.kinds[alive]
    kept.lengths = block.lengths[~row_dead]
    inline = (block.kinds[entry_of_row] & POINTER) == 0
    kept.payload = block.payload[np.repeat(~row_dead[inline], block.lengths[inline])]
    kept.table = block.table
    return kept


def entry_sizes(block: FeedBlock) -> Numbers:
    """Payload bytes of each entry, wherever they are stored."""
    ends = np.concatenate(([0], np.cumsum(block.lengths, dtype=np.int64)))
    last = np.cumsum(block.counts, dtype=np.int64)
    return ends[last] - ends[last - block.counts]
