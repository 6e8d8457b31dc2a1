"""Nothing lost and nothing twice, whoever dies."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from perennial.spark.options import parse_write_options
from perennial.spark.writer import append_rows
from tests.harness.server import ServerProcess
from tests.spark.conftest import ROOT, environment, new_bucket
from tests.spark.dying import DyingDataSource
from tests.spark.http_calls import Calls

JSON = "application/json"


def numbers(calls: Calls) -> list[int]:
    return sorted(message for name in calls.streams() for message in calls.messages(name))


def rows(spark: SparkSession, count: int, streams: int = 20) -> DataFrame:
    return spark.range(count).selectExpr(f"concat('s-', id % {streams}) as stream", "string(id) as payload")


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_a_task_that_dies_after_its_rows_were_taken(spark: SparkSession, calls: Calls) -> None:
    spark.dataSource.register(DyingDataSource)
    writer = rows(spark, 5000).write.format("dying").options(**calls.options, contentType=JSON)
    writer.option("batchRows", "50").mode("append").save()
    assert numbers(calls) == list(range(5000))


def test_a_streaming_task_that_dies_after_its_rows_were_taken(
    spark: SparkSession, calls: Calls, tmp_path: Path
) -> None:
    spark.dataSource.register(DyingDataSource)
    target = calls.sibling(f"{calls.bucket}-copy")
    calls.create("s", JSON)
    calls.append_json("s", *range(600))
    copy(spark, calls, target, tmp_path, sink="dying", maxRowsPerTrigger="300")
    assert numbers(target) == list(range(600))


def test_a_driver_that_dies_before_it_notes_that_a_batch_is_done(
    spark: SparkSession, calls: Calls, tmp_path: Path
) -> None:
    target = calls.sibling(f"{calls.bucket}-copy")
    calls.create("s", JSON)
    calls.append_json("s", *range(500))
    copy(spark, calls, target, tmp_path, maxRowsPerTrigger="200")
    notes = sorted((tmp_path / "commits").glob("[0-9]*"), key=lambda note: int(note.name))
    notes[-1].unlink()
    (tmp_path / "commits" / f".{notes[-1].name}.crc").unlink(missing_ok=True)
    calls.append_json("s", *range(500, 700))
    copy(spark, calls, target, tmp_path, maxRowsPerTrigger="200")
    assert numbers(target) == list(range(700))


@pytest.mark.slow
def test_a_driver_killed_in_a_running_query(spark: SparkSession, calls: Calls, tmp_path: Path) -> None:
    """The killed driver is another process; its query goes on in this one."""
    target = calls.sibling(f"{calls.bucket}-copy")
    calls.create("s", JSON)
    calls.append_json("s", *range(20_000))
    arguments = [calls.url, calls.bucket, target.bucket, str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.spark.copy_query", *arguments],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as driver:
        try:
            wait_until(lambda: target.head_position() >= 1_500 or driver.poll() is not None)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
    assert 1_500 <= target.head_position() < 20_000
    copy(spark, calls, target, tmp_path)
    assert numbers(target) == list(range(20_000))


@pytest.mark.slow
def test_a_server_killed_and_restarted_in_the_middle_of_a_batch(
    spark: SparkSession, server: ServerProcess
) -> None:
    calls = new_bucket(server)
    crashes = []

    def has_reached(position: int) -> bool:
        return calls.head_position() >= position

    def crash_twice() -> None:
        for least in (2_000, 6_000):
            wait_until(partial(has_reached, least))
            server.kill()
            crashes.append(least)
            time.sleep(0.3)
            server.start()

    chaos = threading.Thread(target=crash_twice)
    chaos.start()
    # Streams of bytes: a request per row, so that a batch has a middle.
    frame = rows(spark, 12_000, streams=50)
    frame.write.format("perennial").options(**calls.options).mode("append").save()
    chaos.join()
    assert len(crashes) == 2
    found = spark.read.format("perennial").options(**calls.options, value="true").load()
    assert sorted(int(row.value) for row in found.select("value").collect()) == list(range(12_000))


def test_two_attempts_of_a_task_at_the_same_time(calls: Calls) -> None:
    """Speculative execution, without the wait for Spark to speculate."""
    options = parse_write_options({**calls.options, "contentType": JSON, "batchRows": "7"})
    reports: list[Any] = []

    def attempt() -> None:
        reports.append(append_rows(batches(3_000), options, "spark-same-0", 0))

    attempts = [threading.Thread(target=attempt) for _ in range(3)]
    for thread in attempts:
        thread.start()
    for thread in attempts:
        thread.join()
    assert [report.rows for report in reports] == [3_000] * 3
    assert sum(report.repeats for report in reports) == 2 * reports[0].requests
    for n in range(10):
        assert calls.messages(f"s-{n}") == list(range(n, 3_000, 10))


def batches(count: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, count, 500):
        ids = range(start, start + 500)
        yield pa.record_batch({"stream": [f"s-{n % 10}" for n in ids], "payload": [str(n) for n in ids]})


def copy(
    spark: SparkSession,
    source: Calls,
    target: Calls,
    checkpoint: Path,
    sink: str = "perennial",
    **options: str,
) -> None:
    query = (
        spark.readStream.format("perennial")
        .options(**source.options, **options)
        .load()
        .select("stream", "payload", "content_type")
        .writeStream.format(sink)
        .options(**target.options, checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(90)
    assert not query.isActive
