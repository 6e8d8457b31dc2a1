"""Resumable HTTP responses, for asyncio. Knowing `proxy` is knowing this.

async with AsyncProxyClient("http://127.0.0.1:4437/v1/proxy", token="…") as proxy:
    async with proxy.stream("POST", url, json={…}) as response:
        async for chunk in response:
            …
"""

import asyncio
import json as jsonlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import aiohttp
from yarl import URL

from perennial.client.calls import Call, Calls, Opened, connected, done, opened, stream_id_of
from perennial.client.errors import Disconnected
from perennial.client.proxy import PATIENCE_SECONDS, READ_TIMEOUT_SECONDS
from perennial.client.reading import Reading, ResponseReader

Renewal = Callable[[], Awaitable[str]]
Result = TypeVar("Result")
BROKEN = (aiohttp.ClientError, OSError, TimeoutError)


class Pending(Generic[Result]):
    """Something to `await`, or to enter with `async with`."""

    def __init__(self, work: Callable[[], Awaitable[Result]]) -> None:
        self._work = work
        self._result: Result | None = None

    def __await__(self) -> Generator[Any, None, Result]:
        return self._work().__await__()

    async def __aenter__(self) -> Result:
        self._result = await self._work()
        return self._result

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self._result, AsyncProxyResponse):
            self._result.close()


class AsyncProxyResponse:
    """An upstream's response, read from its durable stream; see `proxy.ProxyResponse`."""

    def __init__(self, client: "AsyncProxyClient", reading: Reading, renew: Renewal | None) -> None:
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
        return self._reading.url

    @property
    def offset(self) -> int:
        return self._reader.offset

    @property
    def status(self) -> int | None:
        return None if self._reader.start is None else self._reader.start.status

    @property
    def headers(self) -> Mapping[str, str]:
        return {} if self._reader.start is None else self._reader.start.headers

    @property
    def set_cookies(self) -> list[str]:
        return [] if self._reader.start is None else self._reader.start.set_cookies

    # The body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while not self._closed:
            while self._waiting:
                chunk, self._reader.offset = self._waiting.pop(0)
                yield chunk
            if self._reader.ended:
                ending = self._reader.ending()
                if ending is not None and not (self._aborted_here and self._reader.aborted):
                    raise ending
                return
            await self._read_more()

    async def iter_lines(self) -> AsyncIterator[bytes]:
        rest = b""
        async for chunk in self:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line.removesuffix(b"\r")
        if rest:
            yield rest

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self])

    async def text(self) -> str:
        return (await self.read()).decode()

    async def json(self) -> Any:
        return jsonlib.loads(await self.read())

    # Ending early

    async def abort(self) -> None:
        self._aborted_here = True
        await self._client.abort(self.url)

    def close(self) -> None:
        self._closed = True

    # Steps

    async def await_start(self) -> Self:
        while self._reader.start is None and not self._reader.ended:
            await self._read_more()
        return self

    async def _read_more(self) -> None:
        reading = self._reading
        try:
            async with self._client.send(Call("GET", reading.next_url())) as answer:
                if reading.accepts(answer.status, _headers(answer)):
                    async for piece in _pieces(answer.content):
                        self._waiting += self._reader.feed(piece)
                elif answer.status != 204:
                    await self._cope(answer.status, _headers(answer), await answer.read())
                    return
            reading.took()
        except BROKEN:
            await asyncio.sleep(reading.lost(asyncio.get_running_loop().time()))

    async def _cope(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        renewal = self._renew
        now = asyncio.get_running_loop().time()
        pause = self._reading.refused(status, headers, body, now, renewal is not None)
        if pause is not None:
            await asyncio.sleep(pause)
        elif renewal is not None:
            self._reading.url = await renewal()


class AsyncProxySession:
    """A conversation: any number of responses in one stream; made by `AsyncProxyClient.connect`."""

    def __init__(self, client: "AsyncProxyClient", session_id: str, call: Call) -> None:
        self._client = client
        self._call = call
        self.id = session_id
        self.url = ""

    @property
    def stream_id(self) -> str:
        return stream_id_of(self.url)

    async def renew(self) -> str:
        self.url = connected(*await self._client.ask(self._call))
        return self.url

    def stream(self, method: str, url: str, **request: Any) -> Pending[AsyncProxyResponse]:
        async def work() -> AsyncProxyResponse:
            answer = await self._client.forward(method, url, onto=self.url, **request)
            self.url = answer.url
            return await self._client.read(answer.url, answer.response_id, 0, self.renew).await_start()

        return Pending(work)

    def resume(self, response_id: int, offset: int = 0) -> Pending[AsyncProxyResponse]:
        return self._client.resume(self.url, response_id, offset=offset, session=self)

    async def abort(self) -> None:
        await self._client.abort(self.url)


class AsyncProxyClient:
    """Talks to one proxy; see `proxy.ProxyClient`."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        patience: float = PATIENCE_SECONDS,
        timeout: float = READ_TIMEOUT_SECONDS,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._calls = Calls(url, token)
        self._patience = patience
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=timeout, sock_read=timeout)
        self._ssl = ssl_context
        self._session: aiohttp.ClientSession | None = None

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
    ) -> Pending[AsyncProxyResponse]:
        async def work() -> AsyncProxyResponse:
            answer = await self.forward(
                method, url, headers=headers, content=content, json=json, authorization=authorization, ttl=ttl
            )
            return await self.read(answer.url, answer.response_id, 0, None).await_start()

        return Pending(work)

    def append(self, stream_url: str, method: str, url: str, **request: Any) -> Pending[AsyncProxyResponse]:
        async def work() -> AsyncProxyResponse:
            answer = await self.forward(method, url, onto=stream_url, **request)
            return await self.read(answer.url, answer.response_id, 0, None).await_start()

        return Pending(work)

    async def connect(
        self,
        session_id: str,
        *,
        auth_url: str | None = None,
        authorization: str | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        ttl: int | None = None,
    ) -> AsyncProxySession:
        call = self._calls.connect(
            session_id,
            auth_url=auth_url,
            authorization=authorization,
            headers=headers,
            content=content,
            ttl=ttl,
        )
        session = AsyncProxySession(self, session_id, call)
        await session.renew()
        return session

    def resume(
        self, url: str, response_id: int = 1, *, offset: int = 0, session: AsyncProxySession | None = None
    ) -> Pending[AsyncProxyResponse]:
        async def work() -> AsyncProxyResponse:
            response = self.read(url, response_id, offset, None if session is None else session.renew)
            return await response.await_start() if offset == 0 else response

        return Pending(work)

    async def abort(self, url: str) -> None:
        done(*await self.ask(self._calls.abort(url)))

    async def delete(self, stream_id: str) -> None:
        done(*await self.ask(self._calls.delete(stream_id)))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # For responses and sessions

    async def forward(self, method: str, url: str, *, json: Any = None, **request: Any) -> Opened:
        return opened(*await self.ask(self._calls.forward(method, url, json_body=json, **request)))

    def read(self, url: str, response_id: int, offset: int, renew: Renewal | None) -> AsyncProxyResponse:
        return AsyncProxyResponse(
            self, Reading(url, ResponseReader(response_id, offset), self._patience), renew
        )

    def send(self, call: Call) -> Any:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, ssl=self._ssl if self._ssl is not None else True)
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=self._timeout, auto_decompress=False
            )
        return self._session.request(
            call.method,
            URL(call.url, encoded=True),
            headers=call.headers,
            data=call.body or None,
            allow_redirects=False,
            skip_auto_headers=("Content-Type", "Accept-Encoding", "Accept", "User-Agent"),
        )

    async def ask(self, call: Call) -> tuple[int, dict[str, str], bytes]:
        try:
            async with self.send(call) as answer:
                return answer.status, _headers(answer), await answer.read()
        except BROKEN as error:
            raise Disconnected(f"no answer from the proxy ({type(error).__name__})") from error


async def _pieces(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The body as it comes. What came before a break is handed out before the break is raised."""
    while True:
        try:
            piece = await content.readany()
        except BROKEN:
            # The public way drops these, and a connection that always breaks there would never get further.
            if content._buffer:
                yield content._read_nowait(-1)
            raise
        if not piece:
            return
        yield piece


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}
