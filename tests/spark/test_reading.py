import pickle
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from perennial.spark.options import parse_read_options
from perennial.spark.reader import FeedReader
from perennial.spark.stream_reader import FeedStreamReader
from tests.harness.server import ServerProcess
from tests.spark.http_calls import Calls


def table(spark: SparkSession, calls: Calls, **options: str) -> DataFrame:
    return spark.read.format("perennial").options(**calls.options, **options).load()


def test_a_bucket_is_a_table_of_its_messages(spark: SparkSession, calls: Calls) -> None:
    calls.create("notes", "text/plain")
    calls.append("notes", b"one", "text/plain")
    calls.append("notes", "zwei€".encode(), "text/plain")
    calls.close("notes")
    calls.create("events", "application/json")
    calls.append_json("events", {"n": 1}, [2])
    before = datetime.now(UTC)
    rows = table(spark, calls).orderBy("position").collect()
    assert [row.position for row in rows] == [1, 2, 3, 4, 5]
    assert [bytes(row.payload) if row.payload else None for row in rows] == [
        *(b"one", "zwei€".encode(), None, b'{"n": 1}', b"[2]")
    ]
    assert [(row.stream, row.offset, row.next_offset, row.closed) for row in rows] == [
        ("notes", 0, 3, False),
        ("notes", 3, 10, False),
        ("notes", 10, 10, True),
        ("events", 0, 8, False),
        ("events", 8, 11, False),
    ]
    assert {row.bucket for row in rows} == {calls.bucket}
    assert rows[0].content_type == "text/plain"
    assert rows[0].timestamp.replace(tzinfo=UTC) <= before


def test_one_large_stream_is_read_by_several_tasks(spark: SparkSession, calls: Calls) -> None:
    calls.create("large", "application/json")
    for start in range(0, 40_000, 4_000):
        calls.append_json("large", *({"n": n, "x": "y" * 200} for n in range(start, start + 4_000)))
    rows = table(spark, calls, jsonSchema="n bigint")
    assert rows.rdd.getNumPartitions() >= 4
    found = rows.selectExpr("count(*)", "count(distinct n)", "sum(n)").collect()
    assert [tuple(row) for row in found] == [(40_000, 40_000, 799_980_000)]


def fill_three(calls: Calls) -> None:
    for name in ("chat-1", "chat-2", "log"):
        calls.create(name, "application/json")
        calls.append_json(name, *range(10))


def test_queries_over_one_data_frame_do_not_disturb_each_other(spark: SparkSession, calls: Calls) -> None:
    """Spark plans a reader once per relation: a condition must not stick to it."""
    fill_three(calls)
    rows = table(spark, calls)
    assert rows.where("stream = 'log' and position > 25").count() == 5
    assert rows.count() == 30
    assert rows.where("stream in ('chat-1', 'log')").count() == 20
    assert rows.where("stream = 'log'").union(rows.where("stream = 'chat-1'")).union(rows).count() == 50
    rows.createOrReplaceTempView("messages")
    assert spark.sql("select * from messages where position < 4").count() == 3
    assert spark.sql("select * from messages").count() == 30


def test_options_choose_streams_and_positions_at_the_server(spark: SparkSession, calls: Calls) -> None:
    fill_three(calls)
    assert table(spark, calls, prefix="chat").count() == 20
    assert table(spark, calls, streams="log,chat-2").count() == 20
    assert table(spark, calls, startingPosition="28", endingPosition="29").count() == 1


def test_conditions_are_answered_by_the_server_where_asked_for(spark: SparkSession, calls: Calls) -> None:
    fill_three(calls)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        plan = table(spark, calls, pushFilters="true").where("stream = 'log' and position > 25")
        assert "Filter (" not in plan._jdf.queryExecution().executedPlan().toString()
        assert plan.count() == 5
        left = table(spark, calls, pushFilters="true").where("stream like 'chat-%' and stream like '%2'")
        assert left.count() == 10
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_columns_are_chosen_by_schema_or_option(spark: SparkSession, calls: Calls) -> None:
    calls.create("s", "application/json")
    calls.append_json("s", {"id": 1, "name": "a"}, {"id": "x"}, 3, {"name": "b\n", "id": 4})
    chosen = (
        spark.read.format("perennial").options(**calls.options).schema("position long, stream string").load()
    )
    assert chosen.columns == ["position", "stream"]
    assert chosen.count() == 4
    assert table(spark, calls, columns="value,stream", value="true").columns == ["value", "stream"]
    typed = table(spark, calls, jsonSchema="id bigint, name string").orderBy("position")
    assert [(row.id, row["name"]) for row in typed.collect()] == [
        (1, "a"),
        (None, None),
        (None, None),
        (4, "b\n"),
    ]


def test_bytes_that_are_no_text_do_not_stop_a_read(spark: SparkSession, calls: Calls) -> None:
    calls.create("raw")
    calls.append("raw", b"\xff\xfe")
    calls.append("raw", b"fine")
    rows = table(spark, calls, value="true").orderBy("position").collect()
    assert [row.value for row in rows] == ["\ufffd\ufffd", "fine"]


def test_an_empty_bucket_is_an_empty_table(spark: SparkSession, calls: Calls) -> None:
    assert table(spark, calls).count() == 0


def test_deleted_streams_are_not_read(spark: SparkSession, calls: Calls) -> None:
    for name in ("keep", "drop"):
        calls.create(name)
        calls.append(name, b"x")
    calls.delete("drop")
    assert [row.stream for row in table(spark, calls).collect()] == ["keep"]


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"url": "http://127.0.0.1:9"}, "Check that the server is running"),
        ({"bucket": "nowhere"}, "There is no bucket 'nowhere'"),
        ({"maxRows": "3"}, "there is no option 'maxrows'"),
        ({"columns": "colour"}, "there is no column colour"),
    ],
)
def test_what_cannot_work_fails_at_once_and_says_why(
    spark: SparkSession, calls: Calls, options: dict[str, str], advice: str
) -> None:
    with pytest.raises(PySparkException, match=advice):
        spark.read.format("perennial").options(**{**calls.options, **options}).load()


def test_a_wrong_token_says_so(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("tokens")
    with ServerProcess(data / "data", {"PERENNIAL_AUTH_TOKENS": "right"}) as server:
        reader = spark.read.format("perennial").options(url=server.url, bucket="default")
        with pytest.raises(PySparkException, match="Set the option 'token'"):
            reader.load()
        with pytest.raises(PySparkException, match="does not know this token"):
            reader.option("token", "wrong").load()
        assert reader.option("token", "right").load().count() == 0


def test_readers_can_be_sent_to_the_tasks(calls: Calls) -> None:
    options = parse_read_options(calls.options)
    schema = StructType().add("stream", "string")
    for reader in (FeedReader(options, schema), FeedStreamReader(options, schema)):
        assert pickle.loads(pickle.dumps(reader)).options == options
