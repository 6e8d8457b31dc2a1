import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from perennial.protocol.frames import (
    COOKIE_SEPARATOR,
    encode_abort,
    encode_complete,
    encode_data,
    encode_error,
    encode_start,
)
from perennial.spark.jobs import responses
from perennial.spark.jobs.responses import ResponsesOptions
from perennial.spark.options import make_target
from tests.spark.http_calls import Calls

COOKIES = ["a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT", "b=2"]
EVENTS = {"content-type": "text/event-stream", "set-cookie": COOKIE_SEPARATOR.join(COOKIES)}


def test_frames_become_one_row_per_response(spark: SparkSession, calls: Calls, tmp_path: Path) -> None:
    chunk: dict[str, Any] = {"model": "m-1", "choices": [{"delta": {"content": "Hello"}}]}
    usage = {"model": "m-1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in (chunk, usage))
    calls.create("r")
    for frames in (
        encode_start(1, 200, EVENTS) + encode_data(1, body[:40]),
        encode_start(2, 500, {}) + encode_data(1, body[40:]),
        encode_abort(2) + encode_complete(1),
        encode_start(3, 200, {}) + encode_data(3, b"\x00\xff") + encode_error(3, "BROKEN", "it broke"),
        encode_start(4, 200, {}),
    ):
        calls.append("r", frames)
    calls.create("other")
    calls.append("other", b"no frames at all")
    options = ResponsesOptions(make_target(calls.url, calls.bucket), str(tmp_path / "table"))
    for _ in range(2):  # the second run replaces the first one's table
        assert responses.run(spark, options).facts["responses"] == 4
    found = spark.read.parquet(options.to).orderBy("response_id").collect()
    assert [(row.stream, row.status, row.ended, row.bytes) for row in found] == [
        ("r", 200, "complete", len(body)),
        ("r", 500, "abort", 0),
        ("r", 200, "error", 2),
        ("r", 200, "open", 0),
    ]
    first = found[0]
    assert (first.model, first.text, first.input_tokens, first.output_tokens) == ("m-1", "Hello", 3, 1)
    assert bytes(first.body) == body
    assert first.headers == EVENTS
    split = (
        spark.read.parquet(options.to)
        .where("response_id = 1")
        .selectExpr(r"split(headers['set-cookie'], ',\t') as cookies")
    )
    assert [row.cookies for row in split.collect()] == [COOKIES], "as docs/pipeline.md has it"
    assert first.started <= first.first_byte <= first.finished
    assert [path.name for path in tmp_path.iterdir()] == ["table"]
