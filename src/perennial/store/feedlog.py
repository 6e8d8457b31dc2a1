"""The feed log: what each commit added to a bucket, in commit order, laid out by column.

One entry per append or close, so a reader's cost grows with the new data and not with the number of
streams. Small payloads are copied here, so that reading a feed is one sequential scan; payloads of
`INLINE_LIMIT` bytes or more stay in their stream's block only, and the entry points at them: copying
those would double the disk's work for bytes that a single look-up finds quickly.

    head          version, number of content types, of entries, messages and streams; sizes of names and types
    positions     u64 per entry: the feed position of its first message, or of the close
    times         u64 per entry: commit time in microseconds
    offsets       u64 per entry: where the append begins in its stream
    ids           u64 per stream
    streams       u32 per entry: index into the table of streams
    counts        u32 per entry: its messages (0: a close without data)
    lengths       u32 per message
    name_lengths  u16 per stream
    type_of       u16 per stream: index into the content types
    kinds         u8 per entry: CLOSES, POINTER bits
    names         the streams' names, one after another
    types         content types, joined by line feeds
    payload       the inlined messages' bytes

The table of streams is laid out by column too: a merged value has nearly as many streams as messages.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perennial.store.additions import Additions
from perennial.store.errors import StoreCorrupt

VERSION: Final = 1
CLOSES: Final = 1
POINTER: Final = 2
INLINE_LIMIT: Final = 16 * 1024

_HEAD: Final = struct.Struct("<BBHIIIII")

Numbers = npt.NDArray[Any]


def encode_commit(added: Additions, time_us: int) -> bytes:
    """A feed value with what one commit added."""
    number = len(added.rows)
    table = {row[0]: row for row in added.rows}
    streams: Sequence[int] = range(number)
    if len(table) < number:
        indices = {stream_id: index for index, stream_id in enumerate(table)}
        streams = [indices[row[0]] for row in added.rows]
    ids, names, types = zip(*table.values(), strict=True)
    type_indices = {content_type: index for index, content_type in enumerate(dict.fromkeys(types))}
    lengths = added.sizes if added.single else _lengths(added.ends)
    kinds, payloads = bytes(added.closes), added.payloads  # CLOSES is what True is
    if max(added.sizes) >= INLINE_LIMIT:
        kinds = bytes(
            [kind | POINTER * (size >= INLINE_LIMIT) for kind, size in zip(kinds, added.sizes, strict=True)]
        )
        payloads = tuple(payload for payload in payloads if len(payload) < INLINE_LIMIT)
    return _encode(
        number,
        len(lengths),
        len(ids),
        (
            struct.pack(f"<{number}Q", *added.positions),
            struct.pack("<Q", time_us) * number,
            struct.pack(f"<{number}Q", *added.offsets),
            struct.pack(f"<{len(ids)}Q", *ids),
            struct.pack(f"<{number}I", *streams),
            struct.pack(f"<{number}I", *added.counts),
            struct.pack(f"<{len(lengths)}I", *lengths),
            struct.pack(f"<{len(ids)}H", *map(len, names)),
            struct.pack(f"<{len(ids)}H", *[type_indices[content_type] for content_type in types]),
            kinds,
        ),
        b"".join(names),
        list(type_indices),
        payloads,
    )


def _lengths(ends: Sequence[Sequence[int]]) -> list[int]:
    return [end - start for each in ends for start, end in pairwise((0, *each))]


def _encode(
    entries: int,
    messages: int,
    streams: int,
    columns: Sequence[bytes],
    names: bytes,
    types: Sequence[bytes],
    payloads: Sequence[bytes],
) -> bytes:
    joined = b"\n".join(types)
    head = _HEAD.pack(VERSION, 0, len(types), entries, messages, streams, len(names), len(joined))
    return b"".join((head, *columns, names, joined, *payloads))


class StreamTable:
    """The streams of a feed value by column; `names` holds their names, one after another."""

    __slots__ = ("ids", "name_lengths", "names", "type_of", "types")

    def __init__(
        self, ids: Numbers, name_lengths: Numbers, names: Numbers, type_of: Numbers, types: Sequence[bytes]
    ) -> None:
        self.ids = ids
        self.name_lengths = name_lengths
        self.names = names
        self.type_of = type_of
        self.types = types

    def each_name(self) -> Iterator[bytes]:
        names, end = self.names.tobytes(), 0
        for length in self.name_lengths.tolist():
            yield names[end : end + length]
            end += length

    def limits(self, graves: Mapping[int, int]) -> Numbers | None:
        """Per stream, the offset before which its entries are dead; None if there is no such stream."""
        found = [graves.get(stream_id, 0) for stream_id in self.ids.tolist()] if graves else ()
        return np.array(found, np.int64) if any(found) else None


class FeedBlock:
    """A decoded feed value: columns as arrays, and the table of streams they refer to."""

    __slots__ = ("counts", "kinds", "lengths", "offsets", "payload", "positions", "streams", "table", "times")

    positions: Numbers
    times: Numbers
    offsets: Numbers
    streams: Numbers
    counts: Numbers
    lengths: Numbers
    kinds: Numbers
    payload: Numbers
    table: StreamTable

    def __init__(self, value: bytes) -> None:
        try:
            self._decode(value)
        except (struct.error, ValueError, IndexError) as error:
            raise StoreCorrupt(f"a feed value cannot be read: {error}") from error

    def _decode(self, value: bytes) -> None:
        version, _, types, entries, messages, streams, names_size, types_size = _HEAD.unpack_from(value)
        if version != VERSION:
            raise StoreCorrupt(f"a feed entry has unknown version {version}")
        at = _HEAD.size

        def column(form: str, count: int) -> Numbers:
            nonlocal at
            taken = np.frombuffer(value, form, count, at)
            at += taken.nbytes
            return taken

        self.positions = column("<u8", entries)
        self.times = column("<u8", entries)
        self.offsets = column("<u8", entries)
        ids = column("<u8", streams)
        self.streams = column("<u4", entries)
        self.counts = column("<u4", entries)
        self.lengths = column("<u4", messages)
        name_lengths = column("<u2", streams)
        type_of = column("<u2", streams)
        self.kinds = column("u1", entries)
        names = column("u1", names_size)
        content_types = value[at : at + types_size].split(b"\n")
        self.payload = np.frombuffer(value, "u1", offset=at + types_size)
        if len(content_types) != types:
            raise StoreCorrupt("a feed entry has another number of content types than it says")
        self.table = StreamTable(ids, name_lengths, names, type_of, content_types)
        # Whoever reads these columns relies on one leading to the next.
        counted = int(self.counts.sum(dtype=np.int64))
        if counted != messages or (entries and int(self.streams.max()) >= streams):
            raise StoreCorrupt("the entries of a feed value do not fit its messages and streams")
        if int(name_lengths.sum(dtype=np.int64)) != names_size or (streams and int(type_of.max()) >= types):
            raise StoreCorrupt("the streams of a feed value do not fit its names and types")


def join(blocks: Sequence[FeedBlock]) -> FeedBlock:
    """Consecutive feed values as one. A stream that occurs in several of them occurs as often in the
    table."""
    if len(blocks) == 1:
        return blocks[0]
    joined = FeedBlock.__new__(FeedBlock)
    for name in ("positions", "times", "offsets", "counts", "lengths", "kinds", "payload"):
        setattr(joined, name, np.concatenate([getattr(block, name) for block in blocks]))
    tables = [block.table for block in blocks]
    sizes = [len(table.ids) for table in tables]
    shifts = np.repeat(np.cumsum([0, *sizes[:-1]]), [len(block.streams) for block in blocks])
    joined.streams = (np.concatenate([block.streams for block in blocks]) + shifts).astype(np.uint32)
    types = list(dict.fromkeys(content_type for table in tables for content_type in table.types))
    renumbered = [
        np.array([types.index(content_type) for content_type in table.types], np.uint16)[table.type_of]
        for table in tables
    ]
    joined.table = StreamTable(
        np.concatenate([table.ids for table in tables]),
        np.concatenate([table.name_lengths for table in tables]),
        np.concatenate([table.names for table in tables]),
        np.concatenate(renumbered),
        types,
    )
    return joined


def merge(blocks: Sequence[FeedBlock], graves: Mapping[int, int]) -> bytes | None:
    """Consecutive feed values as one to be stored, without what lies before graves; None if nothing is
    left."""
    joined = join([without_dead(block, graves) for block in blocks])
    if not len(joined.positions):
        return None
    table, streams = _used(joined.table, joined.streams)
    columns = (
        joined.positions,
        joined.times,
        joined.offsets,
        table.ids,
        streams.astype("<u4"),
        joined.counts,
        joined.lengths,
        table.name_lengths,
        table.type_of,
        joined.kinds,
    )
    return _encode(
        len(joined.positions),
        len(joined.lengths),
        len(table.ids),
        [column.tobytes() for column in columns],
        table.names.tobytes(),
        table.types,
        [joined.payload.tobytes()],
    )


def _used(table: StreamTable, references: Numbers) -> tuple[StreamTable, Numbers]:
    """The table with the streams that are referred to, each once, and the references into it."""
    _, first, streams = np.unique(table.ids[references], return_index=True, return_inverse=True)
    chosen = references[first]
    lengths = table.name_lengths.astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    names = _gather(table.names, starts[chosen], lengths[chosen])
    used = StreamTable(
        table.ids[chosen], table.name_lengths[chosen], names, table.type_of[chosen], table.types
    )
    return used, streams


def _gather(data: Numbers, starts: Numbers, lengths: Numbers) -> Numbers:
    """The stretches of `data` that begin at `starts`, one after another."""
    ends = np.cumsum(lengths)
    indices: Numbers = np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1])
    return data[indices]


def without_dead(block: FeedBlock, graves: Mapping[int, int]) -> FeedBlock:
    """The same value without the messages that lie before their stream's grave."""
    limits_by_stream = block.table.limits(graves)
    if limits_by_stream is None:
        return block
    limits = limits_by_stream[block.streams]
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
    starts = np.cumsum(block.counts, dtype=np.int64) - block.counts
    with_data = block.counts > 0
    sizes = np.zeros(len(starts), np.int64)
    sizes[with_data] = np.add.reduceat(block.lengths, starts[with_data], dtype=np.int64)
    return sizes
