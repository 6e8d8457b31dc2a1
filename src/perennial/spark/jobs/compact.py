"""Compact: fold each stream that grew into a snapshot, so that readers bootstrap instead of replaying."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from perennial.spark.batching import JSON_TYPE, media_type
from perennial.spark.errors import PipelineError, Refused
from perennial.spark.feed import first_contact
from perennial.spark.folds import find_fold, needs_json, parse_key
from perennial.spark.http import Answer, Server, extension_path, list_streams
from perennial.spark.jobs.summary import Summary
from perennial.spark.options import MIB, Target

OUTCOME: Final = (
    "stream string, outcome string, from_offset long, to_offset long, snapshot_bytes long, reason string"
)
STREAMS_PER_TASK: Final = 64
# Others were faster: a newer snapshot, a trim, a delete. No harm, and nothing to do.
MOVED_ON: Final = (404, 409, 410)


@dataclass(frozen=True)
class CompactOptions:
    target: Target
    fold: str
    key: str | None = None
    # Streams that have so many bytes more than their last snapshot covers.
    min_bytes: int = 1 * MIB
    prefix: str = ""
    dry_run: bool = False


def run(spark: SparkSession, options: CompactOptions) -> Summary:
    find_fold(options.fold)
    if options.fold == "latest-by-key" or options.key is not None:
        parse_key(options.key or "")
    first_contact(options.target)
    # The tail alone tells that most streams are too small; only for the others is their snapshot looked at.
    with Server(options.target) as server:
        listed = [
            found
            for found in list_streams(server, options.prefix)
            if found["tail_offset"] >= options.min_bytes
        ]
    candidates = [(found["stream_id"], found["content_type"]) for found in listed]
    if not candidates:
        return _summary(options, [])
    tasks = max(
        1, min(1000, len(candidates) // STREAMS_PER_TASK + 1, spark.sparkContext.defaultParallelism * 4)
    )
    streams = spark.createDataFrame(candidates, "stream string, content_type string").repartition(tasks)
    outcomes = streams.mapInArrow(Compactor(options), OUTCOME).collect()
    return _summary(options, [tuple(outcome) for outcome in outcomes])


class Compactor:
    """The work of a task; carried to it by pickling."""

    def __init__(self, options: CompactOptions) -> None:
        self._options = options

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        with Server(self._options.target) as server:
            for batch in batches:
                outcomes = [self._compact(server, **row) for row in batch.to_pylist()]
                yield pa.RecordBatch.from_pylist(outcomes, schema=OUTCOME_SCHEMA)

    def _compact(self, server: Server, stream: str, content_type: str) -> dict[str, Any]:
        outcome: dict[str, Any] = {"stream": stream}
        try:
            outcome.update(self._fold(server, stream, content_type))
        except Refused as error:
            moved_on = error.status in MOVED_ON
            outcome.update(outcome="moved on" if moved_on else "failed", reason=str(error))
        except (PipelineError, msgspec.MsgspecError) as error:
            outcome.update(outcome="failed", reason=str(error))
        return outcome

    def _fold(self, server: Server, stream: str, content_type: str) -> dict[str, Any]:
        options, bucket = self._options, self._options.target.bucket
        if "/" in stream:
            return {"outcome": "skipped", "reason": "streams with '/' in their names have no snapshots"}
        json = media_type(content_type) == JSON_TYPE
        if needs_json(options.fold) and not json:
            return {"outcome": "skipped", "reason": f"it holds {content_type}, and {options.fold} needs JSON"}
        head = server.request("HEAD", extension_path(bucket, stream)).headers
        tail, covered = int(head["stream-next-offset"]), int(head.get("stream-snapshot-offset", 0))
        if tail - covered < options.min_bytes:
            return {"outcome": "small", "from_offset": covered, "to_offset": tail}
        if options.dry_run:
            return {"outcome": "would fold", "from_offset": covered, "to_offset": tail}
        snapshot = None
        if "stream-snapshot-offset" in head:
            snapshot = server.request("GET", extension_path(bucket, stream, "snapshot", _token(covered))).body
        messages = Messages(server, stream, covered, json)
        folded = find_fold(options.fold, json)(snapshot, messages, options.key)
        for _ in messages:  # a fold may stop early, but the snapshot stands for all that was read
            pass
        path = extension_path(bucket, stream, "snapshot", _token(messages.offset))
        server.request("PUT", path, headers={"Content-Type": content_type}, body=folded)
        return {
            "outcome": "folded",
            "from_offset": covered,
            "to_offset": messages.offset,
            "snapshot_bytes": len(folded),
        }


class Messages:
    """A stream's messages from an offset to its tail, page by page; `offset` is how far it got."""

    def __init__(self, server: Server, stream: str, offset: int, json: bool) -> None:
        self._server = server
        self._path = extension_path(server.target.bucket, stream)
        self._json = json
        self._done = False
        self.offset = offset

    def __iter__(self) -> Iterator[bytes]:
        while not self._done:
            answer = self._server.request("GET", self._path, {"offset": _token(self.offset)})
            self.offset = int(answer.headers["stream-next-offset"])
            self._done = "stream-up-to-date" in answer.headers
            yield from self._split(answer)

    def _split(self, answer: Answer) -> list[bytes]:
        if not self._json:
            return [answer.body]
        return [bytes(message) for message in msgspec.json.decode(answer.body, type=list[msgspec.Raw])]


OUTCOME_SCHEMA: Final = pa.schema(
    [
        pa.field("stream", pa.string()),
        pa.field("outcome", pa.string()),
        pa.field("from_offset", pa.int64()),
        pa.field("to_offset", pa.int64()),
        pa.field("snapshot_bytes", pa.int64()),
        pa.field("reason", pa.string()),
    ]
)


def _token(offset: int) -> str:
    return f"{offset:016d}"


def _summary(options: CompactOptions, outcomes: list[tuple[Any, ...]]) -> Summary:
    def count(outcome: str) -> int:
        return sum(row[1] == outcome for row in outcomes)

    folded = [row for row in outcomes if row[1] in ("folded", "would fold")]
    facts = {
        "streams folded" if not options.dry_run else "streams that would be folded": len(folded),
        "bytes folded": sum(row[3] - row[2] for row in folded),
        "bytes of snapshots": sum(row[4] or 0 for row in folded),
        "streams too small": count("small"),
        "streams that moved on meanwhile": count("moved on"),
        "streams skipped": count("skipped"),
        "streams failed": count("failed"),
    }
    rows = sorted(
        (row[0], row[1], row[5] or f"{row[2]} to {row[3]}") for row in outcomes if row[1] != "small"
    )
    title = f"compacted '{options.target.bucket}' with {options.fold}"
    return Summary(title, facts, ("stream", "outcome", "offsets or reason"), rows[:20])
