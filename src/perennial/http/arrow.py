"""Rows of a feed or a stream as an Arrow IPC stream: columns are handed over, never walked row by row."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from perennial.service.feed import Rows

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


def to_batch(rows: Rows) -> Any:
    names = pa.array([name for name, _ in rows.table], pa.binary()).cast(pa.string())
    types = pa.array([kind.decode("latin-1") for _, kind in rows.table], pa.string())
    streams = pa.array(rows.streams)
    batch = pa.record_batch(
        [
            pa.array(rows.positions),
            names.take(streams),
            pa.array(rows.offsets),
            pa.array(rows.next_offsets),
            pa.array(rows.times).cast(pa.timestamp("us", tz="UTC")),
            types.take(streams),
            pa.array(rows.closed),
            _payload_column(rows),
        ],
        schema=SCHEMA,
    )
    return batch if rows.keep.all() else batch.filter(pa.array(rows.keep))


def _payload_column(rows: Rows) -> Any:
    ends = np.concatenate(([0], np.cumsum(rows.lengths))).astype(np.int32)
    validity = None
    if not rows.is_data.all():
        validity = pa.py_buffer(np.packbits(rows.is_data, bitorder="little").tobytes())
    data = pa.py_buffer(np.ascontiguousarray(rows.payload))
    return pa.Array.from_buffers(pa.binary(), len(rows.lengths), [validity, pa.py_buffer(ends), data])


class ArrowBody:
    """An Arrow IPC stream in the making."""

    def __init__(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pa.ipc.new_stream(self._sink, SCHEMA)
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self.bytes = 0
        self.rows = 0

    def add(self, rows: Rows) -> None:
        batch = to_batch(rows)
        if batch.num_rows == 0:
            return
        self.rows += batch.num_rows
        self.bytes += batch.nbytes
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= BATCH_BYTES:
            self._flush()

    def finish(self) -> memoryview:
        self._flush()
        self._writer.close()
        return memoryview(self._sink.getvalue())

    def _flush(self) -> None:
        if len(self._waiting) == 1:
            self._writer.write_batch(self._waiting[0])
        elif self._waiting:
            table = pa.Table.from_batches(self._waiting, SCHEMA).combine_chunks()
            self._writer.write_table(table)
        self._waiting, self._waiting_bytes = [], 0


def encode(batches: Iterable[Rows]) -> memoryview:
    body = ArrowBody()
    for rows in batches:
        body.add(rows)
    return body.finish()
