"""Responses: the frames of proxy streams as a table, one row per upstream response."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from perennial.client.frames import Frame, FrameError, FrameParser, FrameType, parse_start
from perennial.spark import register
from perennial.spark.completions import read_completion
from perennial.spark.feed import first_contact
from perennial.spark.jobs.summary import Summary
from perennial.spark.options import Target

RESPONSE: Final = (
    "stream string, response_id long, status int, headers map<string, string>, started timestamp, "
    "first_byte timestamp, finished timestamp, bytes long, ended string, body binary, model string, "
    "text string, input_tokens long, output_tokens long"
)
ENDINGS: Final = {FrameType.COMPLETE: "complete", FrameType.ABORT: "abort", FrameType.ERROR: "error"}
ROWS_PER_BATCH: Final = 256


@dataclass(frozen=True)
class ResponsesOptions:
    target: Target
    to: str
    dry_run: bool = False


def run(spark: SparkSession, options: ResponsesOptions) -> Summary:
    first_contact(options.target)
    table = responses(spark, options.target)
    if not options.dry_run:
        replace_table(spark, table, options.to)
        table = spark.read.parquet(options.to)
    counts = table.groupBy("ended").count().collect()
    total = sum(row["count"] for row in counts)
    title = "would write the responses" if options.dry_run else f"wrote the responses to {options.to}"
    return Summary(title, {"responses": total, **{f"ended: {row['ended']}": row["count"] for row in counts}})


def responses(spark: SparkSession, target: Target) -> DataFrame:
    """The table as a data frame. A response whose end has not come yet has `ended` = 'open'."""
    register(spark)
    rows = (
        spark.read.format("perennial")
        .schema("position long, stream string, offset long, timestamp timestamp, payload binary")
        .options(url=target.url, bucket=target.bucket, retrySeconds=target.retry_seconds)
        .options(**({"token": target.token} if target.token else {}))
        .load()
        .where("payload is not null")
    )
    return (
        rows.repartition("stream").sortWithinPartitions("stream", "position").mapInArrow(assemble, RESPONSE)
    )


def replace_table(spark: SparkSession, table: DataFrame, path: str) -> None:
    """The old table stays until the new one is complete."""
    path = path.rstrip("/")
    draft, old = f"{path}.{uuid.uuid4().hex[:8]}.new", f"{path}.{uuid.uuid4().hex[:8]}.old"
    jvm: Any = spark._jvm
    to_path = jvm.org.apache.hadoop.fs.Path
    files = to_path(path).getFileSystem(spark._jsc.hadoopConfiguration())
    try:
        table.write.parquet(draft)
    except Exception:
        files.delete(to_path(draft), True)
        raise
    if files.exists(to_path(path)):
        files.rename(to_path(path), to_path(old))
    files.rename(to_path(draft), to_path(path))
    files.delete(to_path(old), True)


# In the tasks


@dataclass
class Response:
    stream: str
    response_id: int
    started: datetime
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    first_byte: datetime | None = None
    finished: datetime | None = None
    ended: str = "open"
    pieces: list[bytes] = field(default_factory=list)

    def take(self, frame: Frame, at: datetime) -> None:
        if frame.type is FrameType.START:
            start = parse_start(frame)
            self.status, self.headers = start.status, start.headers
        elif frame.type is FrameType.DATA:
            self.first_byte = self.first_byte or at
            self.pieces.append(frame.payload)
        else:
            self.finished, self.ended = at, ENDINGS[frame.type]

    def row(self) -> dict[str, Any]:
        body = b"".join(self.pieces)
        completion = read_completion(body, self.headers)
        return {
            **{name: getattr(self, name) for name in ("stream", "response_id", "status", "started")},
            **{name: getattr(self, name) for name in ("first_byte", "finished", "ended")},
            "headers": list(self.headers.items()),
            "bytes": len(body),
            "body": body,
            **({} if completion is None else vars(completion)),
        }


def assemble(batches: Iterator[Any]) -> Iterator[Any]:
    """Rows of streams, each stream's together and in order, become responses."""
    rows: list[dict[str, Any]] = []
    for response in _assemble(batches):
        rows.append(response.row())
        if len(rows) >= ROWS_PER_BATCH:
            yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def _assemble(batches: Iterator[Any]) -> Iterator[Response]:
    stream, expected = "", 0
    parser = FrameParser()
    running: dict[int, Response] = {}
    for batch in batches:
        for row in batch.to_pylist():
            # Another stream, or the same name used again after a delete.
            if row["stream"] != stream or row["offset"] < expected:
                yield from running.values()
                stream, running, parser = row["stream"], {}, FrameParser(row["offset"])
            expected = row["offset"] + len(row["payload"])
            for frame in _frames(parser, row["payload"]):
                at = row["timestamp"]
                response = running.setdefault(frame.response_id, Response(stream, frame.response_id, at))
                response.take(frame, at)
                if response.finished is not None:
                    yield running.pop(frame.response_id)
    yield from running.values()


def _frames(parser: FrameParser, payload: bytes) -> list[Frame]:
    try:
        return parser.feed(payload)
    except FrameError:
        return []  # not a stream of the proxy's


SCHEMA: Final = pa.schema(
    [
        pa.field("stream", pa.string()),
        pa.field("response_id", pa.int64()),
        pa.field("status", pa.int32()),
        pa.field("headers", pa.map_(pa.string(), pa.string())),
        pa.field("started", pa.timestamp("us", tz="UTC")),
        pa.field("first_byte", pa.timestamp("us", tz="UTC")),
        pa.field("finished", pa.timestamp("us", tz="UTC")),
        pa.field("bytes", pa.int64()),
        pa.field("ended", pa.string()),
        pa.field("body", pa.binary()),
        pa.field("model", pa.string()),
        pa.field("text", pa.string()),
        pa.field("input_tokens", pa.int64()),
        pa.field("output_tokens", pa.int64()),
    ]
)
