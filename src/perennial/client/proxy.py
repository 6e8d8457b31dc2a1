"""Resumable HTTP responses, blocking.

    proxy = ProxyClient("http://127.0.0.1:4437/v1/proxy", token="…")
    with proxy.stream("POST", "https://api.example.com/v1/chat", json={…}) as response:
        for chunk in response:
            …

If the connection breaks, reading goes on where it stopped; the upstream is asked once only. In another
process, `proxy.resume(url)` reads the same response, from its beginning or from a kept `response.offset`.
"""

import json as jsonlib
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from perennial.client.calls import Call, Calls, Opened, connected, done, opened, stream_id_of
from perennial.client.errors import Disconnected
from perennial.client.reading import Reading, ResponseReader
from perennial.client.wire import Answer, ConnectionLost, Wire

READ_TIMEOUT_SECONDS = 120.0
PATIENCE_SECONDS = 60.0


class ProxyResponse:
    """An upstream's response, read from its durable stream. Iterate it for the body as it comes.

    Leaving the `with` block stops reading, not the upstream: `abort()` does that.
    """

    def __init__(self, client: "ProxyClient", reading: Reading, renew: Callable[[], str] | None) -> None:
        self._client = client
        self._reading = reading
        self._reader = reading.reader
        self._renew = renew
        self._waiting: list[tuple[bytes, int]] = []
        self._aborted_here = False
        self._closed = False

    # What is known before the body

    @property
    def id(self) -> int:
        return self._reader.response_id

    @property
    def url(self) -> str:
        """The signed URL. Whoever has it can read, abort and append; keep it as you would a password."""
        return self._reading.url

    @property
    def offset(self) -> int:
        """Behind the last chunk handed out: keep it with `url` to resume elsewhere."""
        return self._reader.offset

    @property
    def status(self) -> int | None:
        """The upstream's status; None when reading was resumed behind the response's beginning."""
        return None if self._reader.start is None else self._reader.start.status

    @property
    def headers(self) -> Mapping[str, str]:
        return {} if self._reader.start is None else self._reader.start.headers

    @property
    def set_cookies(self) -> list[str]:
        """The upstream's Set-Cookie headers, one by one; `headers` has them as one."""
        return [] if self._reader.start is None else self._reader.start.set_cookies

    # The body

    def __iter__(self) -> Iterator[bytes]:
        while not self._closed:
            while self._waiting:
                chunk, self._reader.offset = self._waiting.pop(0)
                yield chunk
            if self._reader.ended:
                ending = self._reader.ending()
                if ending is not None and not (self._aborted_here and self._reader.aborted):
                    raise ending
                return
            self._read_more()

    def iter_lines(self) -> Iterator[bytes]:
        """The body line by line, without line ends: for SSE and JSON lines."""
        rest = b""
        for chunk in self:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line.removesuffix(b"\r")
        if rest:
            yield rest

    def read(self) -> bytes:
        return b"".join(self)

    def text(self) -> str:
        return self.read().decode()

    def json(self) -> Any:
        return jsonlib.loads(self.read())

    # Ending early

    def abort(self) -> None:
        """Cut the upstream off. What has arrived can still be read."""
        self._aborted_here = True
        self._client.abort(self.url)

    def close(self) -> None:
        """Stop reading."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Steps

    def await_start(self) -> Self:
        while self._reader.start is None and not self._reader.ended:
            self._read_more()
        return self

    def _read_more(self) -> None:
        """One request, fed to the reader piece by piece, so that a break costs nothing that came before."""
        reading = self._reading
        try:
            with self._client.send(Call("GET", reading.next_url())) as answer:
                if reading.accepts(answer.status, answer.headers):
                    while piece := answer.read_piece():
                        self._waiting += self._reader.feed(piece)
                elif answer.status != 204:
                    self._cope(answer.status, answer.headers, answer.read())
                    return
            reading.took()
        except ConnectionLost:
            time.sleep(reading.lost(time.monotonic()))

    def _cope(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        renewal = self._renew
        pause = self._reading.refused(status, headers, body, time.monotonic(), renewal is not None)
        if pause is not None:
            time.sleep(pause)
        elif renewal is not None:
            self._reading.url = renewal()


class ProxySession:
    """A conversation: any number of responses in one stream, under a name of your own."""

    def __init__(self, client: "ProxyClient", session_id: str, call: Call) -> None:
        self._client = client
        self._call = call
        self.id = session_id
        self.url = self.renew()

    @property
    def stream_id(self) -> str:
        return stream_id_of(self.url)

    def renew(self) -> str:
        """A fresh signed URL, by connecting again."""
        self.url = connected(*self._client.ask(self._call))
        return self.url

    def stream(self, method: str, url: str, **request: Any) -> ProxyResponse:
        """As `ProxyClient.stream`, onto this session's stream."""
        answer = self._client.forward(method, url, onto=self.url, **request)
        self.url = answer.url
        return self._client.read(answer.url, answer.response_id, 0, self.renew).await_start()

    def resume(self, response_id: int, offset: int = 0) -> ProxyResponse:
        response = self._client.read(self.url, response_id, offset, self.renew)
        return response.await_start() if offset == 0 else response

    def abort(self) -> None:
        self._client.abort(self.url)


class ProxyClient:
    """Talks to one proxy. Safe to use from several threads; a response belongs to one of them."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        patience: float = PATIENCE_SECONDS,
        timeout: float = READ_TIMEOUT_SECONDS,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """`patience`: seconds without a server before a read gives up."""
        self._calls = Calls(url, token)
        self._wire = Wire(timeout, ssl_context)
        self._patience = patience

    def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | str | None = None,
        json: Any = None,
        authorization: str | None = None,
        ttl: int | None = None,
    ) -> ProxyResponse:
        """Ask an upstream through the proxy. `authorization` goes to the upstream, and only there."""
        answer = self.forward(
            method, url, headers=headers, content=content, json=json, authorization=authorization, ttl=ttl
        )
        return self.read(answer.url, answer.response_id, 0, None).await_start()

    def append(self, stream_url: str, method: str, url: str, **request: Any) -> ProxyResponse:
        """As `stream`, onto the stream of a signed URL; an expired one will do."""
        answer = self.forward(method, url, onto=stream_url, **request)
        return self.read(answer.url, answer.response_id, 0, None).await_start()

    def connect(
        self,
        session_id: str,
        *,
        auth_url: str | None = None,
        authorization: str | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        ttl: int | None = None,
    ) -> ProxySession:
        """Begin or rejoin a session. `auth_url` is asked, through the proxy, whether that is allowed."""
        call = self._calls.connect(
            session_id,
            auth_url=auth_url,
            authorization=authorization,
            headers=headers,
            content=content,
            ttl=ttl,
        )
        return ProxySession(self, session_id, call)

    def resume(
        self, url: str, response_id: int = 1, *, offset: int = 0, session: ProxySession | None = None
    ) -> ProxyResponse:
        """Read a response by its stream's signed URL. With its `session`, an expired URL is renewed."""
        response = self.read(url, response_id, offset, None if session is None else session.renew)
        return response.await_start() if offset == 0 else response

    def abort(self, url: str) -> None:
        """Cut off every upstream that is writing to the stream."""
        done(*self.ask(self._calls.abort(url)))

    def delete(self, stream_id: str) -> None:
        done(*self.ask(self._calls.delete(stream_id)))

    def close(self) -> None:
        self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # For responses and sessions

    def forward(self, method: str, url: str, *, json: Any = None, **request: Any) -> Opened:
        return opened(*self.ask(self._calls.forward(method, url, json_body=json, **request)))

    def read(self, url: str, response_id: int, offset: int, renew: Callable[[], str] | None) -> ProxyResponse:
        reading = Reading(url, ResponseReader(response_id, offset), self._patience)
        return ProxyResponse(self, reading, renew)

    def send(self, call: Call) -> Answer:
        return self._wire.send(call)

    def ask(self, call: Call) -> tuple[int, dict[str, str], bytes]:
        """Sent once: whether the proxy did it is not known after a break, and doing it twice may matter."""
        try:
            with self._wire.send(call) as answer:
                return answer.status, answer.headers, answer.read()
        except ConnectionLost as error:
            raise Disconnected(str(error)) from error
