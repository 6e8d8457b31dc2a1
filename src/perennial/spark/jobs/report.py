"""Report: how a bucket is used, as a page with plots and as a picture."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from perennial.spark import register
from perennial.spark.errors import PipelineError
from perennial.spark.feed import first_contact
from perennial.spark.jobs.archive import DAY
from perennial.spark.jobs.responses import responses
from perennial.spark.jobs.summary import Summary
from perennial.spark.options import Target
from perennial.spark.plots import draw, write_page

PROXY_BUCKET: Final = "proxy"
HOTTEST: Final = 15
PERCENTILES: Final = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class ReportOptions:
    target: Target
    to: str
    dry_run: bool = False


@dataclass
class Usage:
    """What the report says; plain values, so that drawing needs no Spark."""

    bucket: str
    streams: int = 0
    messages: int = 0
    bytes: int = 0
    days: list[tuple[str, int, int]] = field(default_factory=list)  # day, messages, bytes
    sizes: list[tuple[int, int]] = field(default_factory=list)  # power of two, messages
    hottest: list[tuple[str, int, int]] = field(default_factory=list)  # stream, messages, bytes
    # name, then a value per percentile
    percentiles: list[tuple[str, float, float, float]] = field(default_factory=list)


def run(spark: SparkSession, options: ReportOptions) -> Summary:
    register(spark)
    first_contact(options.target)
    usage = measure(spark, options.target)
    facts = {
        "streams": usage.streams,
        "messages": usage.messages,
        "bytes": usage.bytes,
        "days": len(usage.days),
    }
    title = f"usage of '{options.target.bucket}'"
    if not options.dry_run:
        folder = Path(options.to)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            picture = draw(usage)
            write_page(folder, usage, picture)
        except OSError as error:
            raise PipelineError(f"cannot write the report to {folder}: {error.strerror or error}") from error
        facts["written to"] = f"{folder / 'index.html'} and report.png"  # type: ignore[assignment]
    return Summary(title, facts, ("stream", "messages", "bytes"), usage.hottest[:5])


def measure(spark: SparkSession, target: Target) -> Usage:
    rows = (
        spark.read.format("perennial")
        .schema("stream string, timestamp timestamp, payload binary")
        .options(url=target.url, bucket=target.bucket, retrySeconds=target.retry_seconds)
        .options(**({"token": target.token} if target.token else {}))
        .load()
        .where("payload is not null")
        .selectExpr("stream", DAY, "length(payload) as size")
    )
    # One pass over the feed; all that is asked below is asked of this much smaller table.
    counted = rows.selectExpr("stream", "date", "size", "cast(ceil(log2(greatest(size, 1))) as int) as power")
    sums = F.count("*").alias("messages"), F.sum("size").alias("bytes")
    table = counted.groupBy("stream", "date", "power").agg(*sums).cache()
    try:
        usage = _usage(target.bucket, table)
    finally:
        table.unpersist()
    if target.bucket == PROXY_BUCKET:
        usage.percentiles = _percentiles(responses(spark, target))
    return usage


def _usage(bucket: str, table: DataFrame) -> Usage:
    totals = table.selectExpr("count(distinct stream)", "sum(messages)", "sum(bytes)").head()
    assert totals is not None, "an aggregate has a row"

    def grouped(column: str) -> DataFrame:
        sums = F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes")
        return table.groupBy(column).agg(*sums)

    return Usage(
        bucket,
        totals[0],
        totals[1] or 0,
        totals[2] or 0,
        [(str(row.date), row.messages, row.bytes) for row in grouped("date").orderBy("date").collect()],
        [(row.power, row.messages) for row in grouped("power").orderBy("power").collect()],
        [
            tuple(row)
            for row in grouped("stream").orderBy("messages", ascending=False).limit(HOTTEST).collect()
        ],
    )


def _percentiles(table: DataFrame) -> list[tuple[str, float, float, float]]:
    wanted = {
        "seconds to first byte": "(unix_micros(first_byte) - unix_micros(started)) / 1e6",
        "seconds to the end": "(unix_micros(finished) - unix_micros(started)) / 1e6",
        "input tokens": "input_tokens",
        "output tokens": "output_tokens",
    }
    levels = ", ".join(str(level) for level in PERCENTILES)
    found: Any = table.selectExpr(
        *(f"percentile({expr}, array({levels}))" for expr in wanted.values())
    ).head()
    return [(name, *values) for name, values in zip(wanted, found, strict=True) if values is not None]
