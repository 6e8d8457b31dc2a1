"""The jobs on local Spark. A job's options and summary are what a notebook would use."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from perennial.spark.errors import BadOption, PipelineError
from perennial.spark.http import list_streams
from perennial.spark.jobs import archive, compact, load, report
from perennial.spark.jobs.archive import ArchiveOptions
from perennial.spark.jobs.compact import CompactOptions
from perennial.spark.jobs.load import LoadOptions
from perennial.spark.jobs.report import ReportOptions
from perennial.spark.lake import Lake
from perennial.spark.options import Target, make_target
from tests.spark.http_calls import Calls

WORDS = ("naïve", "日本語", "🙂", "\u2028", "plain")


def target(calls: Calls) -> Target:
    return make_target(calls.url, calls.bucket)


def fill_at_random(calls: Calls, seed: int, streams: int = 6) -> None:
    """Bytes, JSON and text; some streams closed, with data or without, some deleted and made again."""
    chance = random.Random(seed)
    for number in range(streams):
        name = f"{chance.choice(WORDS[:3])} {seed}-{number}"
        kind = chance.choice(("application/octet-stream", "application/json", "text/plain"))
        for life in range(chance.choice((1, 1, 2))):
            if life:
                calls.delete(name)
            calls.create(name, kind)
            for _ in range(chance.randrange(1, 8)):
                calls.append(name, _body(chance, kind), kind)
        if chance.random() < 0.4:
            calls.close(name)


def _body(chance: random.Random, kind: str) -> bytes:
    if kind == "application/json":
        values = [
            {chance.choice(WORDS): chance.random(), "n": [None, True, chance.choice(WORDS)]} for _ in range(5)
        ]
        return json.dumps(
            values, ensure_ascii=chance.random() < 0.5, indent=chance.choice((None, 1))
        ).encode()
    if kind == "text/plain":
        return " ".join(chance.choice(WORDS) for _ in range(20)).encode()
    return chance.randbytes(chance.randrange(1, 3000))


def test_a_lake_alone_rebuilds_every_stream(spark: SparkSession, calls: Calls, tmp_path: Path) -> None:
    options = ArchiveOptions(target(calls), str(tmp_path / "lake"), merge_at=3)
    for seed in range(4):
        fill_at_random(calls, seed)
        archive.run(spark, options)
    assert archive.run(spark, options).facts["rows"] == 0
    lake = Lake(spark, options.lake)
    contents = lake.contents(calls.bucket)
    assert contents.position == calls.head_position()
    assert len(contents.files) < 4, "small files were not merged"
    assert all(file.path.startswith(f"bucket={calls.bucket}/date=20") for file in contents.files.values())
    # Whoever reads the directory itself finds the same.
    assert spark.read.parquet(options.lake).count() == lake.read(calls.bucket).count()
    restored = calls.sibling(f"{calls.bucket}-again")
    again = LoadOptions(target(restored), lake=options.lake, lake_bucket=calls.bucket)
    load.run(spark, again)
    assert restored.digest() == calls.digest()
    assert load.run(spark, again).facts["bytes appended"] == 0
    # What has been archived since then is all that a later load brings.
    fill_at_random(calls, 99)
    archive.run(spark, options)
    load.run(spark, again)
    assert restored.digest() == calls.digest()


def test_archiving_that_fails_leaves_nothing_and_can_be_repeated(
    spark: SparkSession, calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_at_random(calls, 1)
    options = ArchiveOptions(target(calls), str(tmp_path / "lake"))

    def full(*_: Any) -> None:
        raise OSError("write failed: No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("pyspark.sql.readwriter.DataFrameWriter.parquet", full)
        with pytest.raises(PipelineError, match=r"no room left .* Make room there and run the job again"):
            archive.run(spark, options)
    assert not list(tmp_path.rglob("*.parquet"))
    assert Lake(spark, options.lake).contents(calls.bucket).position == 0
    assert archive.run(spark, options).facts["rows"] > 0
    assert Lake(spark, options.lake).contents(calls.bucket).position == calls.head_position()


def test_two_archivers_cannot_both_add_the_same_rows(
    spark: SparkSession, calls: Calls, tmp_path: Path
) -> None:
    fill_at_random(calls, 2)
    options = ArchiveOptions(target(calls), str(tmp_path / "lake"))
    lake = Lake(spark, options.lake)
    stale = lake.contents(calls.bucket)
    archive.run(spark, options)
    planned = archive._plan_round(options, stale.position)
    with pytest.raises(PipelineError, match="another job has changed"):
        archive._archive_round(spark, lake, options, stale, planned)
    rows = lake.read(calls.bucket)
    assert rows.count() == rows.select("position").distinct().count()


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_files_are_loaded_once_and_in_their_order(
    spark: SparkSession, calls: Calls, tmp_path: Path, form: str
) -> None:
    def more(name: str, start: int) -> None:
        rows = spark.range(start, start + 300, 1, 3).selectExpr("id", "id % 4 as user", "'ü' as text")
        rows.write.format(form).options(header="true").save(str(tmp_path / name))

    more("a", 0)
    options = LoadOptions(
        target(calls),
        path=str(tmp_path / "*"),
        format=form,
        stream="concat('user-', user)",
        payload="to_json(struct(int(id) as id, text))",
    )
    assert load.run(spark, options).facts["streams created"] == 4
    assert load.run(spark, options).facts["bytes appended"] == 0
    more("b", 300)
    load.run(spark, options)
    for user in range(4):
        expected = [{"id": number, "text": "ü"} for number in range(user, 600, 4)]
        found = calls.messages(f"user-{user}")
        assert sorted(found, key=lambda message: message["id"]) == expected
        assert found[:75] == expected[:75], "files come in the order of their names, rows in that of the file"


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"path": None}, "say where to load from"),
        ({"format": "xml"}, "must be one of parquet, csv, json"),
        ({"stream": None}, "are expressions over the columns"),
        ({"stream": "nobody"}, "Its columns are id"),
        ({"path": "/no/such/path"}, "cannot read /no/such/path"),
    ],
)
def test_what_cannot_be_loaded_says_why(
    spark: SparkSession, calls: Calls, tmp_path: Path, change: dict[str, Any], advice: str
) -> None:
    spark.range(3).write.parquet(str(tmp_path / "a"))
    given = {"path": str(tmp_path / "a"), "stream": "'s'", "payload": "string(id)", **change}
    with pytest.raises((PipelineError, BadOption), match=advice):
        load.run(spark, LoadOptions(target(calls), **given))
    assert calls.streams() == {}


def test_compaction_folds_what_grew_and_goes_on_from_there(spark: SparkSession, calls: Calls) -> None:
    for name in ("large", "small"):
        calls.create(name, "application/json")
    calls.append_json("large", *({"id": n % 3, "n": n, "x": "y" * 100} for n in range(100)))
    calls.append_json("small", {"id": 1})
    calls.create("bytes")
    calls.append("bytes", b"x" * 2000)
    options = CompactOptions(target(calls), "latest-by-key", "id", min_bytes=1000)
    done = compact.run(spark, options)
    assert (done.facts["streams folded"], done.facts["streams skipped"]) == (1, 1)
    assert [message["n"] for message in json.loads(calls.snapshot("large"))] == [99, 97, 98]
    assert compact.run(spark, options).facts["streams folded"] == 0
    calls.append_json("large", *({"id": 1, "n": n, "x": "y" * 100} for n in range(100, 120)))
    assert compact.run(spark, options).facts["streams folded"] == 1
    assert [message["n"] for message in json.loads(calls.snapshot("large"))] == [99, 119, 98]


def test_compaction_leaves_streams_that_moved_on(
    spark: SparkSession, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls.create("there", "application/json")
    calls.append_json("there", *range(1000))
    gone = {"stream_id": "gone", "content_type": "application/json", "tail_offset": 9999}
    listing: Callable[..., Any] = list_streams
    monkeypatch.setattr(compact, "list_streams", lambda *given: [*listing(*given), gone])
    done = compact.run(spark, CompactOptions(target(calls), "concat", min_bytes=100))
    assert (done.facts["streams folded"], done.facts["streams that moved on meanwhile"]) == (1, 1)
    assert json.loads(calls.snapshot("there")) == list(range(1000))


def test_a_report_is_a_page_and_a_picture(spark: SparkSession, calls: Calls, tmp_path: Path) -> None:
    calls.create("<b>busy", "application/json")
    calls.append_json("<b>busy", *range(50))
    calls.create("idle", "application/json")
    calls.append_json("idle", "x" * 1000)
    done = report.run(spark, ReportOptions(target(calls), str(tmp_path / "out")))
    assert (done.facts["streams"], done.facts["messages"]) == (2, 51)
    assert (tmp_path / "out" / "report.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "out" / "index.html").read_text()
    assert "&lt;b&gt;busy" in page
    assert "<b>busy" not in page
