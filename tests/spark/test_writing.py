import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.http_calls import Calls


def write(rows: DataFrame, calls: Calls, **options: str) -> None:
    rows.write.format("perennial").options(**calls.options, **options).mode("append").save()


def test_rows_become_messages_of_their_streams(spark: SparkSession, calls: Calls) -> None:
    rows = spark.range(1000).selectExpr("concat('s-', id % 7) as stream", "to_json(struct(id)) as payload")
    write(rows, calls, contentType="application/json")
    assert {name: found["content_type"] for name, found in calls.streams().items()} == {
        f"s-{n}": "application/json" for n in range(7)
    }
    for n in range(7):
        ids = [message["id"] for message in calls.messages(f"s-{n}")]
        assert sorted(ids) == list(range(n, 1000, 7))
    assert calls.head_position() == 1000


def test_streams_of_bytes_keep_their_messages_apart(spark: SparkSession, calls: Calls) -> None:
    rows = spark.createDataFrame([("b", bytes([n])) for n in range(200)], "stream string, payload binary")
    write(rows.coalesce(1), calls)
    assert calls.read("b") == bytes(range(200))
    assert calls.head_position() == 200


def test_joined_rows_are_one_message(spark: SparkSession, calls: Calls) -> None:
    rows = spark.createDataFrame([("b", bytes([n])) for n in range(200)], "stream string, payload binary")
    write(rows.coalesce(1), calls, coalesce="true")
    assert calls.read("b") == bytes(range(200))
    assert calls.head_position() == 1


def test_streams_that_exist_keep_their_content_type(spark: SparkSession, calls: Calls) -> None:
    calls.create("j", "application/json")
    write(
        spark.createDataFrame([("j", "1"), ("j", "[2]")], "stream string, payload string").coalesce(1), calls
    )
    assert calls.messages("j") == [1, [2]]


def test_content_types_and_closes_come_with_the_rows(spark: SparkSession, calls: Calls) -> None:
    rows = [("t", "a", "text/plain", False), ("t", "b", "text/plain", True), ("e", None, "text/csv", True)]
    schema = "stream string, payload string, content_type string, closed boolean"
    write(spark.createDataFrame(rows, schema).coalesce(1), calls)
    found = calls.streams()
    assert (calls.read("t"), found["t"]["content_type"], found["t"]["status"]) == (
        b"ab",
        "text/plain",
        "Closed",
    )
    assert (calls.read("e"), found["e"]["content_type"], found["e"]["status"]) == (b"", "text/csv", "Closed")


def test_what_was_read_can_be_written_elsewhere(spark: SparkSession, calls: Calls) -> None:
    calls.create("naïve name?&", "application/json")
    calls.append_json("naïve name?&", "ü", {"a": None})
    other = calls.sibling(f"{calls.bucket}-copy")
    write(spark.read.format("perennial").options(**calls.options).load(), other)
    assert other.digest() == calls.digest()


def test_two_writes_of_the_same_rows_are_two_writes(spark: SparkSession, calls: Calls) -> None:
    rows = spark.range(50).selectExpr("'s' as stream", "cast(id as string) as payload")
    writer = rows.write.format("perennial").options(**calls.options, contentType="application/json")
    for _ in range(2):
        writer.mode("append").save()
    assert calls.head_position() == 100


def test_the_same_write_id_makes_a_repetition_harmless(spark: SparkSession, calls: Calls) -> None:
    rows = spark.range(500).selectExpr("concat('s-', id % 3) as stream", "cast(id as string) as payload")
    for _ in range(2):
        write(rows, calls, contentType="application/json", writeId="monday")
    assert calls.head_position() == 500


def test_a_closed_stream_written_again_with_the_same_id_is_a_repetition(
    spark: SparkSession, calls: Calls
) -> None:
    rows = [("t", "a", False), ("t", "b", False), ("t", "c", True)]
    frame = spark.createDataFrame(rows, "stream string, payload string, closed boolean").coalesce(1)
    for _ in range(2):
        write(frame, calls, writeId="once")
    assert calls.read("t") == b"abc"
    with pytest.raises(PySparkException, match="'t' is closed and takes no more rows"):
        write(frame.drop("closed"), calls)


def test_streams_of_the_default_bucket_may_have_slashes(spark: SparkSession, calls: Calls) -> None:
    name = f"a/b/{calls.bucket}"
    default = Calls(calls.url, "default")
    write(spark.createDataFrame([(name, "hello")], "stream string, payload string"), default)
    assert default.request("GET", f"/v1/stream/{name}")[1] == b"hello"


@pytest.mark.parametrize(
    ("columns", "advice"),
    [
        (["'s' as stream"], "column 'payload' is missing"),
        (["'x' as payload"], "column 'stream' is missing"),
        (["'s' as stream", "id as payload"], "column 'payload' is bigint and must be binary or string"),
        (["id as stream", "'x' as payload"], "column 'stream' is bigint and must be string"),
        (["'s' as stream", "'x' as payload", "id as extra"], "nobody would read column 'extra'"),
    ],
)
def test_wrong_columns_are_named_before_anything_is_written(
    spark: SparkSession, calls: Calls, columns: list[str], advice: str
) -> None:
    with pytest.raises(PySparkException, match=advice):
        write(spark.range(3).selectExpr(*columns), calls)
    assert calls.streams() == {}


@pytest.mark.parametrize(
    ("rows", "options", "advice"),
    [
        (
            [("s", "no json")],
            {"contentType": "application/json"},
            "holds JSON, and this row's payload is none",
        ),
        ([("s", None)], {}, "where payload is not null"),
        ([(None, "x")], {}, "no stream name"),
        ([("a/b", "x")], {}, "malformed stream id"),
        ([("s", "x")], {"url": "http://127.0.0.1:9"}, "Check that the server is running"),
        ([("s", "x")], {"bucket": "nowhere"}, "There is no bucket 'nowhere'"),
    ],
)
def test_rows_that_cannot_be_written_say_why(
    spark: SparkSession, calls: Calls, rows: list[tuple[str, str]], options: dict[str, str], advice: str
) -> None:
    frame = spark.createDataFrame(rows, "stream string, payload string")
    with pytest.raises(PySparkException, match=advice):
        frame.write.format("perennial").options(**{**calls.options, **options}).mode("append").save()
    assert calls.head_position() == 0


def test_overwriting_is_refused(spark: SparkSession, calls: Calls) -> None:
    frame = spark.createDataFrame([("s", "x")], "stream string, payload string")
    with pytest.raises(PySparkException, match="append-only"):
        frame.write.format("perennial").options(**calls.options).mode("overwrite").save()
