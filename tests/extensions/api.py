"""Buckets, snapshots, bootstrap and feeds as a test speaks of them: short calls in, plain values out."""

import io
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
import pyarrow as pa

from tests.harness.wire import Answer, Wire

BYTES = "application/octet-stream"
JSON = "application/json"
TEXT = "text/plain"
ZERO = "0000000000000000"


def token(position: int) -> str:
    """The offset token of a byte position."""
    return f"{position:016d}"


class Part(NamedTuple):
    content_type: str
    body: bytes


class Bootstrap(NamedTuple):
    answer: Answer
    parts: list[Part]

    @property
    def snapshot(self) -> Part:
        return self.parts[0]

    @property
    def messages(self) -> list[bytes]:
        return [part.body for part in self.parts[1:]]


class Page(NamedTuple):
    """A page of a feed; each row is a dictionary by column."""

    rows: list[dict[str, Any]]
    next_position: int
    head_position: int

    @property
    def positions(self) -> list[int]:
        return [row["position"] for row in self.rows]

    @property
    def payloads(self) -> list[bytes | None]:
        return [row["payload"] for row in self.rows]


class Api:
    """A server on this machine; each request has a connection of its own."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self.port = port
        self._authorization = {} if token is None else {"Authorization": f"Bearer {token}"}

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        with Wire(self.port) as wire:
            return wire.request(method, path, self._authorization | dict(headers or {}), body)

    def open(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Wire:
        """Ask, and leave the answer for later."""
        wire = Wire(self.port)
        wire.ask(method, path, self._authorization | dict(headers or {}), body)
        return wire

    def new_bucket(self) -> "Bucket":
        bucket = Bucket(self, f"test-{secrets.token_hex(6)}")
        assert bucket.create_itself().status == 201
        return bucket


class Bucket:
    def __init__(self, api: Api, id: str) -> None:
        self.api = api
        self.id = id

    def path(self, stream: str = "", below: str = "", query: Mapping[str, Any] | None = None) -> str:
        path = f"/ds/{self.id}"
        if stream:
            path += "/" + quote(stream, safe="")
        if below:
            path += "/" + below
        return path + (f"?{urlencode(query)}" if query else "")

    # The bucket itself

    def create_itself(self) -> Answer:
        return self.api.ask("PUT", self.path())

    def delete_itself(self) -> Answer:
        return self.api.ask("DELETE", self.path())

    def describe(self) -> dict[str, Any]:
        answer = self.api.ask("GET", self.path())
        assert answer.status == 200, answer
        found: dict[str, Any] = msgspec.json.decode(answer.body)
        return found

    def list(self, **query: Any) -> dict[str, Any]:
        answer = self.api.ask("GET", self.path("streams", query=query))
        assert answer.status == 200, answer
        page: dict[str, Any] = msgspec.json.decode(answer.body)
        return page

    # Streams

    def create(
        self, stream: str, body: bytes = b"", content_type: str | None = TEXT, **headers: str
    ) -> Answer:
        answer = self.try_create(stream, body, content_type, **headers)
        assert answer.status == 201, answer
        return answer

    def try_create(
        self, stream: str, body: bytes = b"", content_type: str | None = TEXT, **headers: str
    ) -> Answer:
        return self.api.ask("PUT", self.path(stream), _headers(content_type, headers), body)

    def fork(self, source: str, stream: str, body: bytes = b"", **headers: str) -> Answer:
        """A fork of a stream of this bucket."""
        answer = self.try_fork(source, stream, body, **headers)
        assert answer.status == 201, answer
        return answer

    def try_fork(self, source: str, stream: str, body: bytes = b"", **headers: str) -> Answer:
        return self.try_create(stream, body, None, stream_forked_from=self.path(source), **headers)

    def append(self, stream: str, body: bytes, content_type: str = TEXT, **headers: str) -> str:
        """The tail after it."""
        answer = self.try_append(stream, body, content_type, **headers)
        assert answer.status in (200, 204), answer
        return answer.next_offset

    def try_append(self, stream: str, body: bytes, content_type: str = TEXT, **headers: str) -> Answer:
        return self.api.ask("POST", self.path(stream), _headers(content_type, headers), body)

    def close(self, stream: str) -> Answer:
        return self.api.ask("POST", self.path(stream), {"Stream-Closed": "true"})

    def get(self, stream: str, **query: Any) -> Answer:
        return self.api.ask("GET", self.path(stream, query=query))

    def head(self, stream: str) -> Answer:
        return self.api.ask("HEAD", self.path(stream))

    def delete(self, stream: str) -> Answer:
        return self.api.ask("DELETE", self.path(stream))

    # Snapshots and bootstrap

    def snapshot_path(self, stream: str, offset: str = "") -> str:
        return self.path(stream, f"snapshot/{quote(offset, safe='')}" if offset else "snapshot")

    def publish(
        self, stream: str, offset: str, body: bytes = b"state", content_type: str | None = BYTES
    ) -> None:
        answer = self.try_publish(stream, offset, body, content_type)
        assert answer.status == 204, answer

    def try_publish(
        self, stream: str, offset: str, body: bytes = b"state", content_type: str | None = BYTES
    ) -> Answer:
        path = self.snapshot_path(stream, offset)
        return self.api.ask("PUT", path, _headers(content_type, {}), body)

    def latest_snapshot(self, stream: str) -> Answer:
        return self.api.ask("GET", self.snapshot_path(stream))

    def get_snapshot(self, stream: str, offset: str) -> Answer:
        return self.api.ask("GET", self.snapshot_path(stream, offset))

    def delete_snapshot(self, stream: str, offset: str) -> Answer:
        return self.api.ask("DELETE", self.snapshot_path(stream, offset))

    def bootstrap(self, stream: str) -> Bootstrap:
        answer = self.api.ask("GET", self.path(stream, "bootstrap"))
        assert answer.status == 200, answer
        return parse_bootstrap(answer)

    # The feed

    def feed_path(self, **query: Any) -> str:
        return f"/v1/feed/{self.id}" + (f"?{urlencode(query)}" if query else "")

    def feed(self, **query: Any) -> Page:
        answer = self.api.ask("GET", self.feed_path(**query))
        assert answer.status == 200, answer
        return parse_page(answer)

    def pages(self, **query: Any) -> Iterator[Page]:
        """From `after` (or the beginning) to the head."""
        after = query.pop("after", 0)
        while True:
            page = self.feed(after=after, **query)
            yield page
            after = page.next_position
            if after == page.head_position:
                return


def parse_bootstrap(answer: Answer) -> Bootstrap:
    return Bootstrap(answer, parse_multipart(answer.headers["content-type"], answer.body))


def parse_multipart(content_type: str, body: bytes) -> list[Part]:
    """RFC 2046, 5.1.1, to the letter: nothing before the first delimiter, nothing after the last."""
    media_type, _, boundary = content_type.partition("; boundary=")
    assert media_type == "multipart/mixed"
    assert 1 <= len(boundary) <= 70
    delimiter = b"--" + boundary.encode()
    assert body.startswith(delimiter + b"\r\n")
    assert body.endswith(b"\r\n" + delimiter + b"--\r\n")
    inner = body[len(delimiter) : -len(b"\r\n" + delimiter + b"--\r\n")]
    parts = []
    for text in inner.split(b"\r\n" + delimiter):
        head, separator, content = text.partition(b"\r\n\r\n")
        assert separator, f"a part without headers: {text[:80]!r}"
        name, _, value = head.decode("latin-1").removeprefix("\r\n").partition(": ")
        assert name == "Content-Type", head
        parts.append(Part(value, content))
    return parts


def parse_page(answer: Answer) -> Page:
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    rows = pa.ipc.open_stream(io.BytesIO(answer.body)).read_all().to_pylist()
    next_position, head = (int(answer.headers[f"feed-{name}-position"]) for name in ("next", "head"))
    return Page(rows, next_position, head)


def _headers(content_type: str | None, headers: Mapping[str, str]) -> dict[str, str]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return named if content_type is None else named | {"Content-Type": content_type}
