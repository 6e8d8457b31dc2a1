"""Batch and streaming writes: thin adapters that give each task its rows, its producer and its epoch."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, BooleanType, StringType, StructType

from perennial.spark.appends import Sink, Written
from perennial.spark.batching import Batcher, Row
from perennial.spark.errors import BadOption, PipelineError
from perennial.spark.feed import first_contact
from perennial.spark.options import WriteOptions

# Set by Spark for every task of a streaming query.
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"

REQUIRED: Final = {"stream": (StringType,), "payload": (BinaryType, StringType)}
OPTIONAL: Final = {"content_type": (StringType,), "closed": (BooleanType,), "producer": (StringType,)}
# Columns of a read, so that what was read can be written without further ado.
IGNORED: Final = frozenset({"position", "offset", "next_offset", "timestamp", "bucket", "value"})


@dataclass
class Report(WriterCommitMessage):
    """What a task has written."""

    written: Written


class AppendWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        check_columns(schema, overwrite)
        first_contact(options.target)
        self.options = options
        # Made once per write, on the driver, so that all attempts of a task share it.
        self.write_id = options.write_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = _task()
        return Report(
            append_rows(iterator, self.options, f"spark-{self.write_id}-{context.partitionId()}", 0)
        )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Streams are append-only: what was taken stays. The same write id would finish the rest."""


class AppendStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        check_columns(schema, overwrite)
        if options.write_id is not None:
            raise BadOption("a streaming query is known by its own id; leave out the option 'writeId'")
        first_contact(options.target)
        self.options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = _task()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise PipelineError("Spark did not say which query and batch this task belongs to")
        producer = f"spark-{query}-{context.partitionId()}"
        return Report(append_rows(iterator, self.options, producer, int(batch)))


def append_rows(batches: Iterator[Any], options: WriteOptions, producer: str, epoch: int) -> Written:
    """One task's rows to the server; returns when all of them are durable there."""
    batcher = Batcher(options.batch_rows, options.batch_bytes, options.buffer_bytes, options.grouped)
    sink = Sink(options, producer, epoch)
    try:
        for batch in batches:
            for groups in batcher.add(rows_of(batch)):
                sink.write(groups)
        sink.write(batcher.finish())
        return sink.finish()
    finally:
        sink.close()


def rows_of(batch: Any) -> Sequence[Row]:
    names = batch.schema.names
    payload = batch["payload"]
    if not pa.types.is_binary(payload.type):
        payload = payload.cast(pa.binary())
    absent = [None] * batch.num_rows
    optional = [batch[name].to_pylist() if name in names else absent for name in ("producer", "content_type")]
    closed = batch["closed"].to_pylist() if "closed" in names else absent
    return list(zip(batch["stream"].to_pylist(), *optional, payload.to_pylist(), closed, strict=True))


def check_columns(schema: StructType, overwrite: bool) -> None:
    if overwrite:
        raise BadOption("streams are append-only and cannot be overwritten; use mode('append')")
    found = {field.name: field.dataType for field in schema.fields}
    for name in REQUIRED:
        if name not in found:
            raise BadOption(
                f"column '{name}' is missing; a write needs 'stream' (string) and 'payload' (binary or "
                f"string), and there are: {', '.join(found)}"
            )
    for name, kind in found.items():
        allowed = (REQUIRED | OPTIONAL).get(name)
        if allowed is None:
            if name not in IGNORED:
                raise BadOption(
                    f"nobody would read column '{name}'; put it into the payload, "
                    "to_json(struct(...)) as payload say, or drop it"
                )
        elif not isinstance(kind, allowed):
            wanted = " or ".join(option.__name__.removesuffix("Type").lower() for option in allowed)
            advice = "; to_json(struct(...)) makes one of any columns" if name == "payload" else ""
            raise BadOption(f"column '{name}' is {kind.simpleString()} and must be {wanted}{advice}")


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "writes happen in tasks"
    return context
