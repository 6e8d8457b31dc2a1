from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.harness.server import ServerProcess
from tests.spark.conftest import new_bucket
from tests.spark.http_calls import Calls

JSON = "application/json"


def fill(calls: Calls, start: int, stop: int, streams: int = 5) -> None:
    for name in range(streams):
        if f"s-{name}" not in calls.streams():
            calls.create(f"s-{name}", JSON)
        calls.append_json(f"s-{name}", *range(start + name, stop, streams))


def stream(spark: SparkSession, calls: Calls, **options: str) -> DataFrame:
    return spark.readStream.format("perennial").options(**calls.options, **options).load()


def copy(frame: DataFrame, calls: Calls, checkpoint: Path) -> StreamingQuery:
    """Everything there is now, to another bucket."""
    query = (
        frame.select("stream", "payload", "content_type")
        .writeStream.format("perennial")
        .options(**calls.options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    assert not query.isActive
    return query


def values(calls: Calls) -> list[Any]:
    return sorted(message for name in calls.streams() for message in calls.messages(name))


def test_a_query_goes_on_where_it_stopped(spark: SparkSession, calls: Calls, tmp_path: Path) -> None:
    target = calls.sibling(f"{calls.bucket}-copy")
    fill(calls, 0, 1000)
    copy(stream(spark, calls), target, tmp_path)
    assert values(target) == list(range(1000))
    fill(calls, 1000, 1500)
    query = copy(stream(spark, calls), target, tmp_path)
    assert values(target) == list(range(1500))
    assert query.lastProgress is not None
    assert query.lastProgress["numInputRows"] == 500


def test_batches_keep_to_their_limit_and_report_the_backlog(
    spark: SparkSession, calls: Calls, tmp_path: Path
) -> None:
    target = calls.sibling(f"{calls.bucket}-copy")
    fill(calls, 0, 1000)
    query = copy(stream(spark, calls, maxRowsPerTrigger="400"), target, tmp_path)
    progress = [batch for batch in query.recentProgress if batch["numInputRows"]]
    assert [batch["numInputRows"] for batch in progress] == [400, 400, 200]
    reported = [eval(batch["sources"][0]["latestOffset"]) for batch in progress]
    assert reported == [{"position": 1000, "backlog": left} for left in (600, 200, 0)]
    assert values(target) == list(range(1000))


def test_a_limit_in_bytes_is_kept_about(spark: SparkSession, calls: Calls, tmp_path: Path) -> None:
    target = calls.sibling(f"{calls.bucket}-copy")
    calls.create("s", JSON)
    calls.append_json("s", *("x" * 1000 for _ in range(1000)))
    query = copy(stream(spark, calls, maxBytesPerTrigger="300k"), target, tmp_path)
    sizes = [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]]
    assert sum(sizes) == 1000
    assert len(sizes) >= 3
    assert max(sizes) <= 330


@pytest.mark.parametrize(("start", "expected"), [("earliest", 20), ("12", 8), ("latest", 0)])
def test_a_new_query_starts_where_it_is_told(
    spark: SparkSession, calls: Calls, tmp_path: Path, start: str, expected: int
) -> None:
    target = calls.sibling(f"{calls.bucket}-copy")
    fill(calls, 0, 20)
    copy(stream(spark, calls, startingPosition=start), target, tmp_path)
    assert target.head_position() == expected


def test_a_server_restart_between_batches_is_not_noticed(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    calls = new_bucket(server)
    target = calls.sibling(f"{calls.bucket}-copy")
    fill(calls, 0, 500)
    copy(stream(spark, calls), target, tmp_path / "checkpoint")
    server.kill()
    server.start()
    fill(calls, 500, 900)
    copy(stream(spark, calls), target, tmp_path / "checkpoint")
    assert values(target) == list(range(900))


def test_a_checkpoint_of_other_data_is_refused(spark: SparkSession, calls: Calls, tmp_path: Path) -> None:
    target = calls.sibling(f"{calls.bucket}-copy")
    fill(calls, 0, 100)
    copy(stream(spark, calls), target, tmp_path)
    fresh = calls.sibling(f"{calls.bucket}-new")
    with pytest.raises(PySparkException, match="Start the query with a new checkpoint"):
        copy(stream(spark, fresh), target, tmp_path)


def test_trimmed_positions_stop_a_query_unless_told_otherwise(
    spark: SparkSession, calls: Calls, tmp_path: Path
) -> None:
    target = calls.sibling(f"{calls.bucket}-copy")
    fill(calls, 0, 100, streams=1)
    calls.create("late", JSON)
    calls.append_json("late", 1, 2)
    calls.delete("s-0")
    fill(calls, 200, 210, streams=1)
    position = {"startingPosition": "1"}
    copy(stream(spark, calls, **position, failOnDataLoss="false"), target, tmp_path)
    assert sorted(values(target)) == [1, 2, *range(200, 210)]
