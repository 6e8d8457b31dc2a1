"""A running proxy and its upstream, as a test talks to them."""

import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from perennial.protocol.frames import TERMINAL, Frame, FrameParser, FrameType, parse_failure, parse_start
from tests.harness.server import ServerProcess
from tests.upstream import Reply, Step, Upstream

TOKEN = "a-service-token"
SECRET = "a-secret-that-signs-urls"
PATIENCE_SECONDS = 20.0
SETTINGS = {
    "PERENNIAL_AUTH_TOKENS": TOKEN,
    "PERENNIAL_PROXY_SECRET": SECRET,
    "PERENNIAL_PROXY_ALLOW": "http://127.0.0.1:*/allowed/**,http://localhost:*/allowed/**",
    "PERENNIAL_PROXY_ALLOW_PRIVATE": "true",
    "PERENNIAL_LONG_POLL_TIMEOUT": "2",
}


class Kept:
    """One response as its frames tell it."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self.frames = frames
        assert frames[0].type is FrameType.START, "the Start frame comes first"
        self.start = parse_start(frames[0])
        self.data = [frame.payload for frame in frames if frame.type is FrameType.DATA]
        self.body = b"".join(self.data)
        self.terminals = [frame for frame in frames if frame.type in TERMINAL]

    @property
    def ending(self) -> FrameType | None:
        assert len(self.terminals) <= 1, f"{len(self.terminals)} terminal frames"
        if not self.terminals:
            return None
        assert self.frames[-1] is self.terminals[0], "the terminal frame comes last"
        return self.terminals[0].type

    @property
    def failure(self) -> Any:
        assert self.ending is FrameType.ERROR
        return parse_failure(self.terminals[0])


class Rig:
    """The server under test, an upstream, and the requests a test makes."""

    def __init__(self, server: ServerProcess, upstream: Upstream) -> None:
        self.server = server
        self.upstream = upstream
        self.http = httpx.Client(timeout=PATIENCE_SECONDS)

    @property
    def url(self) -> str:
        return f"{self.server.url}/v1/proxy"

    def script(self, body: Sequence[Step] = (), path: str | None = None, **how: Any) -> str:
        """A new upstream path that answers so; gives its URL."""
        return self.upstream.on(path or f"/allowed/{uuid.uuid4().hex}", Reply(body, **how))

    def post(
        self,
        upstream_url: str | None = None,
        *,
        method: str | None = "POST",
        token: str | None = TOKEN,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> httpx.Response:
        sent = {} if token is None else {"Authorization": f"Bearer {token}"}
        if upstream_url is not None:
            sent["Upstream-URL"] = upstream_url
        if method is not None:
            sent["Upstream-Method"] = method
        return self.http.post(self.url, headers=sent | dict(headers or {}), content=body)

    def create(self, upstream_url: str, **options: Any) -> httpx.Response:
        answer = self.post(upstream_url, **options)
        assert answer.status_code == 201, answer.text
        return answer

    def append(self, stream_url: str, upstream_url: str, **options: Any) -> httpx.Response:
        headers = {"Use-Stream-URL": stream_url} | dict(options.pop("headers", {}))
        return self.post(upstream_url, headers=headers, **options)

    def connect(self, session: str, **options: Any) -> httpx.Response:
        headers = {"Session-Id": session} | dict(options.pop("headers", {}))
        return self.post(options.pop("upstream_url", None), method=None, headers=headers, **options)

    def read(self, url: str, **query: str) -> httpx.Response:
        # Added to the URL as text: httpx would drop what the URL already has.
        more = "".join(f"&{name}={value}" for name, value in query.items())
        return self.http.get(url + more)

    def frames(self, url: str) -> list[Frame]:
        answer = self.read(url, offset="-1")
        assert answer.status_code == 200, answer.text
        parser = FrameParser()
        frames = parser.feed(answer.content)
        assert parser.position == parser.boundary, "the stream ends with a whole frame"
        return frames

    def kept(self, url: str, response_id: int = 1) -> Kept:
        return Kept([frame for frame in self.frames(url) if frame.response_id == response_id])

    def ended(self, url: str, response_id: int = 1) -> Kept:
        """The response once it has its terminal frame."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            frames = self.frames(url)
            kept = Kept([frame for frame in frames if frame.response_id == response_id])
            if kept.ending is not None:
                return kept
            self._wait_behind(url, frames)
        raise AssertionError("the response did not end")

    def until_data(self, url: str, expected: bytes, response_id: int = 1) -> None:
        """Wait until this much of the body can be read."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            frames = self.frames(url)
            body = Kept([frame for frame in frames if frame.response_id == response_id]).body
            if body.startswith(expected):
                return  # or more by now
            assert expected.startswith(body), body[:200]
            assert time.monotonic() < deadline, body[:200]
            self._wait_behind(url, frames)

    def _wait_behind(self, url: str, frames: Sequence[Frame]) -> None:
        """Until the stream has grown beyond these frames."""
        self.read(url, offset=f"{frames[-1].end:016d}", live="long-poll")

    def tail(self, url: str) -> int:
        return int(self.read(url, offset="now").headers["stream-next-offset"])

    def abort(self, url: str, **options: Any) -> httpx.Response:
        return self.http.patch(f"{url}&action=abort", **options)

    def look(self, stream_id: str, token: str | None = TOKEN) -> httpx.Response:
        return self.http.head(f"{self.url}/{stream_id}", headers=bearer(token))

    def delete(self, stream_id: str, token: str | None = TOKEN) -> httpx.Response:
        return self.http.delete(f"{self.url}/{stream_id}", headers=bearer(token))

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def stream_id(url: str) -> str:
    return httpx.URL(url).path.rpartition("/")[2]


def error_code(answer: httpx.Response) -> str:
    """The code of a refusal, whose form is checked on the way (section 12)."""
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert isinstance(error["message"], str)
    assert error["message"]
    return str(error["code"])


def make_server(data: Path, **more: str) -> ServerProcess:
    return ServerProcess(data, SETTINGS | more)
