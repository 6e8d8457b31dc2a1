"""What forks have inherited: bytes that another stream's commits brought, so that no feed row is theirs.

They are read from the fork itself, once, and kept in the lake beside the feed's rows.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from perennial.spark.http import Server, list_streams, stream_path
from perennial.spark.options import Target

ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
GONE: Final = (404, 410)
# A fork is its name and when it was made: names are used again.
FORK_COLUMNS: Final = "stream string, created long, until long"

Fork = tuple[str, int, int]


def find_forks(server: Server) -> list[Fork]:
    return [
        (found["stream_id"], found["created_at_ms"], found["inherited_bytes"])
        for found in list_streams(server)
        if found.get("inherited_bytes")
    ]


class InheritedReader:
    """The work of a task: forks in, the rows of what they inherited out."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        with Server(self._target) as server:
            for batch in batches:
                for fork in batch.to_pylist():
                    yield from self._read(server, **fork)

    def _read(self, server: Server, stream: str, created: int, until: int) -> Iterator[Any]:
        path = stream_path(self._target.bucket, stream)
        offset = 0
        while offset < until:
            query, headers = {"offset": f"{offset:016d}"}, {"Accept": ARROW_TYPE}
            answer = server.request("GET", path, query, headers, accept=() if offset else GONE)
            if answer.status in GONE:
                yield _nothing_left(stream, created, until)
                return
            for batch in pa.ipc.open_stream(pa.py_buffer(answer.body)):
                rows = batch.filter(pc.less_equal(batch["next_offset"], until))
                yield _shaped(rows, created)
            offset = int(answer.headers["stream-next-offset"])


def _shaped(rows: Any, created: int) -> Any:
    known = {
        **{name: rows[name] for name in rows.schema.names},
        "created": pa.repeat(pa.scalar(created, pa.int64()), rows.num_rows),
        # The source may have been closed with its last message; the fork was not.
        "closed": pa.repeat(pa.scalar(False), rows.num_rows),
    }
    return pa.RecordBatch.from_arrays([known[name] for name in SCHEMA.names], schema=SCHEMA)


def _nothing_left(stream: str, created: int, until: int) -> Any:
    """A row without a payload: a snapshot has replaced the bytes, so nobody need look again."""
    row = {"position": 0, "stream": stream, "offset": until, "next_offset": until, "created": created}
    row |= {"timestamp": created * 1000, "content_type": "", "closed": False, "payload": None}
    return pa.RecordBatch.from_pylist([row], schema=SCHEMA)


SCHEMA: Final = pa.schema(
    [
        pa.field("position", pa.int64()),
        pa.field("stream", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("next_offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("content_type", pa.string()),
        pa.field("closed", pa.bool_()),
        pa.field("payload", pa.binary()),
        pa.field("created", pa.int64()),
    ]
)
