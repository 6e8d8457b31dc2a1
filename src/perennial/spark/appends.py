"""The two requests of a write: create a stream, append to it exactly once; and the sink that sends them."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from perennial.spark.batching import Body, Group, encode, media_type
from perennial.spark.errors import PipelineError
from perennial.spark.http import Answer, Server, identity, refusal, stream_path
from perennial.spark.lanes import Lane
from perennial.spark.options import Target, WriteOptions

DEFAULT_TYPE: Final = "application/octet-stream"

# What streams hold, by server and bucket. A stream's content type never changes, and worker processes are
# used again: with this a query asks once per stream, and not in every batch.
_known_types: dict[tuple[str, str], dict[str, str]] = {}
MOST_KNOWN: Final = 200_000


@dataclass(frozen=True)
class Written:
    rows: int = 0
    requests: int = 0
    repeats: int = 0  # requests that an earlier attempt had already made
    created: int = 0


@dataclass(slots=True)
class CreateStream:
    target: Target
    stream: str
    content_type: str | None
    types: dict[str, str]
    created: bool = False

    @property
    def key(self) -> str:
        return self.stream

    def encode(self, target: Target) -> bytes:
        headers = {"Content-Type": self.content_type or DEFAULT_TYPE}
        return _request(target, "PUT", stream_path(target.bucket, self.stream), headers, b"")

    def settle(self, answer: Answer, after_a_repeat: bool) -> bool:
        if answer.status in (200, 201):
            self.created = answer.status == 201
            self.types[self.stream] = answer.headers["content-type"]
        elif answer.status == 409:
            # Another configuration is there, a lifetime perhaps. What it holds is all that matters here.
            with Server(self.target) as server:
                found = server.request("HEAD", stream_path(self.target.bucket, self.stream))
            self.types[self.stream] = found.headers["content-type"]
        else:
            raise refusal(self.target, answer)
        return True


@dataclass(slots=True)
class AppendRows:
    sink: "Sink"
    stream: str
    producer: str
    epoch: int
    seq: int
    content_type: str
    body: Body

    @property
    def key(self) -> str:
        return self.stream

    def encode(self, target: Target) -> bytes:
        headers = {
            "Content-Type": self.content_type,
            "Producer-Id": self.producer,
            "Producer-Epoch": str(self.epoch),
            "Producer-Seq": str(self.seq),
        }
        if self.body.closes:
            headers["Stream-Closed"] = "true"
        return _request(target, "POST", stream_path(target.bucket, self.stream), headers, self.body.data)

    def settle(self, answer: Answer, after_a_repeat: bool) -> bool:
        if answer.status in (200, 204):
            # A close without data is answered 204 the first time, too.
            repeated = answer.status == 204 and self.body.rows > 0
            self.sink.taken(self, repeated)
            return True
        error = refusal(self.sink.target, answer)
        if error.code == "SEQUENCE_GAP" and after_a_repeat:
            return False
        if error.code == "STREAM_NOT_FOUND" and (after_a_repeat or self.sink.recreate(self.stream)):
            return False
        if error.code == "STREAM_CLOSED" and not self.body.closes:
            # Closed by this very write in an earlier attempt? Then its closing request will be a repeat.
            self.sink.doubt(self)
            return True
        raise _explained(error, self) or error


class Sink:
    """Takes groups of rows and brings them to the server over several lanes."""

    def __init__(self, options: WriteOptions, producer: str, epoch: int) -> None:
        self.target = options.target
        self._options = options
        self._producer = producer
        self._epoch = epoch
        self._lanes = [Lane(options.target) for _ in range(options.connections)]
        self._types = _types_of(options.target)
        self._next_seq: dict[tuple[str, str], int] = {}
        self._doubtful: dict[str, AppendRows] = {}
        self._recreated: set[str] = set()
        self._rows = self._requests = self._repeats = self._created = 0

    def write(self, groups: list[Group]) -> None:
        self._create_missing(groups)
        for group in groups:
            content_type = self._type_for(group)
            producer = self._producer if group.producer is None else group.producer
            lane = self._lane(group.stream)
            for body in encode(group, content_type, self._options.coalesce):
                seq = self._next_seq.get((group.stream, producer), 0)
                self._next_seq[group.stream, producer] = seq + 1
                lane.send(AppendRows(self, group.stream, producer, self._epoch, seq, content_type, body))

    def finish(self) -> Written:
        """Everything has been answered; only now may the task say that it has written."""
        for lane in self._lanes:
            lane.finish()
        if self._doubtful:
            stream = next(iter(self._doubtful))
            raise PipelineError(f"stream '{stream}' is closed and takes no more rows; write to another one")
        return Written(self._rows, self._requests, self._repeats, self._created)

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()

    # What requests report

    def taken(self, append: AppendRows, repeated: bool) -> None:
        self._rows += append.body.rows
        self._requests += 1
        self._repeats += repeated
        if append.body.closes:
            doubtful = self._doubtful.pop(append.stream, None)
            self._rows += 0 if doubtful is None else doubtful.body.rows

    def doubt(self, append: AppendRows) -> None:
        self._doubtful[append.stream] = append

    def recreate(self, stream: str) -> bool:
        """A stream known from earlier was deleted since; once is an accident, twice is somebody's intent."""
        if stream in self._recreated:
            return False
        self._recreated.add(stream)
        content_type = self._types.pop(stream, None)
        with Server(self.target) as server:
            headers = {"Content-Type": content_type or DEFAULT_TYPE}
            server.request("PUT", stream_path(self.target.bucket, stream), headers=headers, accept=(409,))
        self._types[stream] = content_type or DEFAULT_TYPE
        return True

    # Steps

    def _create_missing(self, groups: Iterable[Group]) -> None:
        wanted = {group.stream: group.content_type or self._options.content_type for group in groups}
        missing = [
            CreateStream(self.target, stream, content_type, self._types)
            for stream, content_type in wanted.items()
            if stream not in self._types
        ]
        for create in missing:
            self._lane(create.stream).send(create)
        if missing:
            for lane in self._lanes:
                lane.finish()
            self._created += sum(create.created for create in missing)

    def _type_for(self, group: Group) -> str:
        """The stream's own content type; what the rows say must agree with it."""
        held = self._types[group.stream]
        said = group.content_type or self._options.content_type
        if said is not None and media_type(said) != media_type(held):
            raise PipelineError(
                f"stream '{group.stream}' holds {held}, and these rows are {said}; write them to another "
                "stream, or with that content type"
            )
        return held

    def _lane(self, stream: str) -> Lane:
        # All requests of a stream on one connection, or they could overtake each other.
        return self._lanes[zlib.crc32(stream.encode()) % len(self._lanes)]


def _types_of(target: Target) -> dict[str, str]:
    types = _known_types.setdefault((target.url, target.bucket), {})
    if len(types) > MOST_KNOWN:
        types.clear()
    return types


def _explained(error: PipelineError, append: AppendRows) -> PipelineError | None:
    code = getattr(error, "code", "")
    where = f"stream '{append.stream}'"
    if code == "PRODUCER_FENCED":
        return PipelineError(
            f"{where} has already taken a later batch of this query than batch {append.epoch}: either this "
            "is a left-over attempt, which is harmless, or the query was started from an old copy of its "
            "checkpoint; then start it with a new one"
        )
    if code == "SEQUENCE_GAP":
        return PipelineError(
            f"{where} has lost what this write had already appended ({error}): it was deleted and created "
            "again meanwhile, or the server's data was replaced. Start a new write"
        )
    if code == "STREAM_NOT_FOUND":
        return PipelineError(f"{where} keeps being deleted while it is written to")
    return None


def _request(target: Target, method: str, path: str, headers: dict[str, str], body: bytes) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {urlsplit(target.url).netloc}",
        *(f"{name}: {value}" for name, value in {**identity(target), **headers}.items()),
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
