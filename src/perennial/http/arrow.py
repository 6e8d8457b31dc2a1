"""Rows of a feed or a stream as an Arrow IPC stream: columns are handed over, never walked row by row."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from perennial.service.feed_rows import Rows
from perennial.store.feedlog import Numbers, StreamTable

SCHEMA: Final = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("next_offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("content_type", pa.string(), nullable=False),
        pa.field("closed", pa.bool_(), nullable=False),
        pa.field("payload", pa.binary()),
    ]
)
# Small stored values are put together up to about this many bytes, so that readers get batches worth having.
BATCH_BYTES: Final = 1 << 20

_BEGINNING: Final = memoryview(SCHEMA.serialize())
_END: Final = memoryview(b"\xff\xff\xff\xff\x00\x00\x00\x00")  # no more batches: a continuation of length 0


def to_batch(rows: Rows) -> Any:
    table = rows.table
    batch = pa.record_batch(
        [
            pa.array(rows.positions),
            _names(table).take(pa.array(rows.streams)),
            pa.array(rows.offsets),
            pa.array(rows.next_offsets),
            pa.array(rows.times).view(pa.timestamp("us", tz="UTC")),
            _content_types(table).take(pa.array(table.type_of[rows.streams])),
            pa.array(rows.closed),
            _payloads(rows),
        ],
        schema=SCHEMA,
    )
    return batch if rows.keep is None else batch.filter(pa.array(rows.keep))


class ArrowBody:
    """An Arrow IPC stream in the making; every batch is encoded once and never moved again."""

    def __init__(self) -> None:
        self._pieces = [_BEGINNING]
        self._waiting: list[Any] = []
        self._waiting_bytes = 0

    def add(self, rows: Rows) -> None:
        batch = to_batch(rows)
        if batch.num_rows == 0:
            return
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= BATCH_BYTES:
            self._flush()

    def finish(self) -> list[memoryview]:
        self._flush()
        return [*self._pieces, _END]

    def _flush(self) -> None:
        if self._waiting:
            batch = self._waiting[0] if len(self._waiting) == 1 else pa.concat_batches(self._waiting)
            self._pieces.append(memoryview(batch.serialize()))
        self._waiting, self._waiting_bytes = [], 0


def encode(batches: Iterable[Rows]) -> list[memoryview]:
    body = ArrowBody()
    for rows in batches:
        body.add(rows)
    return body.finish()


def _names(table: StreamTable) -> Any:
    return pa.Array.from_buffers(
        pa.string(), len(table.ids), [None, _offsets(table.name_lengths), pa.py_buffer(table.names)]
    )


def _content_types(table: StreamTable) -> Any:
    return pa.array([content_type.decode("latin-1") for content_type in table.types], pa.string())


def _payloads(rows: Rows) -> Any:
    validity = None
    if not rows.is_data.all():
        validity = pa.py_buffer(np.packbits(rows.is_data, bitorder="little"))
    buffers = [validity, _offsets(rows.lengths), pa.py_buffer(np.ascontiguousarray(rows.payload))]
    return pa.Array.from_buffers(pa.binary(), len(rows.lengths), buffers)


def _offsets(lengths: Numbers) -> Any:
    """Where each of some values ends, as Arrow wants to know it."""
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    return pa.py_buffer(ends)
