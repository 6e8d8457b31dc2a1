"""`python -m benchmarks.pipeline`: how fast Spark reads and writes streams, and whether the goals are met.

Ratios are taken within one run: every rival reads the same rows, on the same machine, in the same session.
The messages are JSON with random text: repeated text would let Parquet's dictionaries answer for the disk.
"""

from __future__ import annotations

import base64
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

import perennial.spark
from benchmarks.paged_source import PagedDataSource
from perennial.spark.appends import Sink
from perennial.spark.batching import Group
from perennial.spark.http import create_bucket
from perennial.spark.options import Target, make_target, parse_write_options

MESSAGE_BYTES = 256
STREAMS = 500
JSON = "application/json"
_chance = random.Random(5)
Row = tuple[str, str, str, "bool | None"]


class Scenario(StrEnum):
    reads = "reads"
    writes = "writes"
    batches = "batches"


def main(
    rows: Annotated[int, typer.Option(help="Messages to read.")] = 2_000_000,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tenth of everything, to see that all runs.")
    ] = False,
    rounds: Annotated[int, typer.Option(help="Measurements; the median counts.")] = 3,
    only: Annotated[Scenario | None, typer.Option(help="Measure this alone.")] = None,
    to: Annotated[Path | None, typer.Option(help="Also write the figures to this file, as JSON.")] = None,
) -> None:
    rows, many, rounds = (rows // 10, 10_000, 1) if quick else (rows, 100_000, rounds)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, serving(Path(folder)) as url:
        spark = session()
        results: list[Row] = []
        if only in (None, Scenario.reads):
            results += measure_reads(spark, url, Path(folder), rows, rounds)
        if only in (None, Scenario.writes):
            results.append(measure_streaming_write(spark, url, Path(folder), rounds, quick))
        if only in (None, Scenario.batches):
            results += measure_micro_batches(spark, url, Path(folder), many, rounds)
        spark.stop()
    table = Table("measured", "figure", "goal", "met")
    for name, figure, goal, met in results:
        table.add_row(name, figure, goal, {True: "yes", False: "NO", None: ""}[met])
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    if to is not None:
        to.write_text(
            json.dumps([dict(zip(("name", "figure", "goal", "met"), row, strict=True)) for row in results])
        )


# Batch reads


def measure_reads(spark: SparkSession, url: str, folder: Path, rows: int, rounds: int) -> Iterator[Row]:
    target = make_target(url, "bench-reads")
    seed(target, rows)
    table = read(spark, target)
    table.write.parquet(f"{folder}/parquet")
    files = spark.read.parquet(f"{folder}/parquet")
    spark.dataSource.register(PagedDataSource)
    # A tenth of the streams is enough for a source that is ten times slower.
    paged = spark.read.format("paged").options(url=url, bucket=target.bucket, streams=STREAMS // 10).load()
    seconds: dict[str, list[float]] = {"feed": [], "parquet": [], "paged": []}
    # Starts the workers, and proves that each rival reads what its figure is about.
    assert (table.count(), files.count(), paged.count()) == (rows, rows, rows // 10)
    for _ in range(rounds):
        seconds["feed"].append(timed(lambda: exhaust(table)))
        seconds["parquet"].append(timed(lambda: exhaust(files)))
        seconds["paged"].append(10 * timed(lambda: exhaust(paged)))
    feed, parquet, pages = (median(seconds[name]) for name in ("feed", "parquet", "paged"))
    rate = rows * MESSAGE_BYTES / feed / 1e6
    yield "batch read", f"{rate:,.0f} MB/s, {rows / feed:,.0f} rows/s", "100 MB/s", rate >= 100
    yield "… of spark.read.parquet's speed", f"{parquet / feed:.2f}", "0.3", parquet / feed >= 0.3
    yield "… of a source with JSON pages", f"{pages / feed:.1f}", "5", pages / feed >= 5


# Streaming writes


def measure_streaming_write(spark: SparkSession, url: str, folder: Path, rounds: int, quick: bool) -> Row:
    target = make_target(url, "bench-writes")
    create_bucket(target)
    per_batch, batches = 20_000 if quick else 100_000, 2 + 2 * rounds
    # Two files are a batch, so the query ends by itself and nothing has to be broken off.
    numbers = spark.range(0, batches * per_batch, 1, 2 * batches).withColumnRenamed("id", "value")
    numbers.write.parquet(f"{folder}/numbers")
    source = spark.readStream.schema("value long").option("maxFilesPerTrigger", 2)
    filler = "x" * (MESSAGE_BYTES - 20)
    rows = source.parquet(f"{folder}/numbers").selectExpr(
        f"concat('s-', value % {STREAMS}) as stream", f"to_json(struct(value, '{filler}' as x)) as payload"
    )
    writer = rows.writeStream.format("perennial").options(url=url, bucket=target.bucket, contentType=JSON)
    query = writer.option("checkpointLocation", f"{folder}/writes").trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [batch for batch in query.recentProgress if batch["numInputRows"] == per_batch]
    assert len(progress) == batches, "every batch is to be as large as its figure says"
    progress = progress[1:]  # the first one starts the workers
    rate = per_batch / median(batch["durationMs"]["triggerExecution"] / 1000 for batch in progress)
    return f"streaming write, {STREAMS} streams", f"{rate:,.0f} rows/s", "30,000 rows/s", rate >= 30_000


# Micro-batches


def measure_micro_batches(
    spark: SparkSession, url: str, folder: Path, many: int, rounds: int
) -> Iterator[Row]:
    few_target, many_target = make_target(url, "bench-few"), make_target(url, "bench-many")
    seed(few_target, 100, streams=100)
    seed(many_target, many, streams=many)
    costs: dict[str, list[float]] = {"bench-few": [], "bench-many": []}
    for turn in range(rounds + 1):
        for target in (few_target, many_target):
            cost = micro_batch(spark, target, f"{folder}/{target.bucket}")
            if turn:  # the first one reads what was there before
                costs[target.bucket].append(cost)
    few, lots = (median(costs[name]) for name in ("bench-few", "bench-many"))
    yield f"10,000 new rows among {100:,} streams", f"{few * 1000:,.0f} ms", "", None
    yield (
        f"10,000 new rows among {many:,} streams",
        f"{lots * 1000:,.0f} ms",
        "flat: 1.5 times",
        lots <= 1.5 * few,
    )


def micro_batch(spark: SparkSession, target: Target, checkpoint: str) -> float:
    """What the batch with the new rows took."""
    seed(target, 10_000, streams=100, first=0)
    reader = spark.readStream.format("perennial").options(url=target.url, bucket=target.bucket).load()
    writer = reader.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return max(batch["durationMs"]["triggerExecution"] / 1000 for batch in query.recentProgress)


# Parts


def seed(target: Target, rows: int, streams: int = STREAMS, first: int = 0) -> None:
    """JSON messages of about 256 bytes each, evenly over streams."""
    create_bucket(target)
    options = parse_write_options({"url": target.url, "bucket": target.bucket, "contentType": JSON})
    sink = Sink(options, f"seed-{time.time_ns()}", 0)
    each, rest = divmod(rows, streams)
    for number in range(first, first + streams):
        count = each + (number - first < rest)
        for start in range(0, count, 2_000):
            messages = [_message(n) for n in range(start, min(count, start + 2_000))]
            sink.write([Group(f"s-{number}", None, None, messages)])
    sink.finish()
    sink.close()


def _message(number: int) -> bytes:
    """JSON around random text. Text that repeats itself, a Parquet file would hold once and hardly read."""
    beginning, end = b'{"n":%d,"x":"' % number, b'"}'
    text = base64.b64encode(_chance.randbytes(MESSAGE_BYTES))
    return beginning + text[: MESSAGE_BYTES - len(beginning) - len(end)] + end


def read(spark: SparkSession, target: Target) -> DataFrame:
    return spark.read.format("perennial").options(url=target.url, bucket=target.bucket).load()


def exhaust(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def timed(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    for key, value in {"spark.ui.showConsoleProgress": "false", "spark.driver.memory": "2g"}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    perennial.spark.register(spark)
    return spark


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "perennial", "serve", "--port", "0", "--data", str(folder / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found: Any = next(
                filter(None, (re.search(r"listening on (\S+)", line) for line in server.stdout))
            )
            yield found[1]
        finally:
            server.terminate()
            server.communicate()


if __name__ == "__main__":
    typer.run(main)
