"""The few calls that prepare streams and check them afterwards. Load never comes from here."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.errors import BenchmarkError

PREFIX = "/v1/stream/"
OCTETS = "application/octet-stream"
TEXT = "text/plain"


@dataclass(frozen=True)
class Chunk:
    """One catch-up answer: the path that asked for it, its bytes, and where to go on."""

    path: str
    body: bytes
    next_offset: str
    up_to_date: bool


class Client:
    """One keep-alive connection to a server on 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def create(self, stream: str, content_type: str) -> None:
        self._call("PUT", PREFIX + stream, b"", {"Content-Type": content_type})

    def append(self, stream: str, body: bytes, content_type: str) -> None:
        self._call("POST", PREFIX + stream, body, {"Content-Type": content_type})

    def chunks(self, stream: str) -> Iterator[Chunk]:
        """Read a stream from its beginning to its tail, as the server cuts it."""
        offset = "-1"
        while True:
            path = f"{PREFIX}{stream}?offset={offset}"
            body, headers = self._call("GET", path)
            chunk = Chunk(path, body, headers["Stream-Next-Offset"], "Stream-Up-To-Date" in headers)
            yield chunk
            if chunk.up_to_date:
                return
            offset = chunk.next_offset

    def close(self) -> None:
        self._connection.close()

    def _call(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[bytes, http.client.HTTPMessage]:
        try:
            self._connection.request(method, path, body, headers or {})
            response = self._connection.getresponse()
            answer = response.read()
        except (http.client.HTTPException, OSError) as problem:
            raise BenchmarkError(f"{method} {path} got no answer: {problem!r}") from problem
        if not 200 <= response.status < 300:
            raise BenchmarkError(f"{method} {path} was answered {response.status}: {answer[:200]!r}")
        return answer, response.headers
