"""The same application behind any ASGI server: uvicorn, hypercorn (HTTP/2 too), or a mount in Starlette.

Handlers are plain functions and answer whenever they like; ASGI wants a coroutine that sends. So an exchange
queues its messages, and the coroutine of its request delivers them as fast as the host takes them.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from perennial.http.exchange import (
    COMMON_HEADERS,
    SECURITY_HEADERS,
    Body,
    Exchange,
    Handler,
    Headers,
    Request,
    is_plain_write,
    join_repeated,
)
from perennial.http.limits import Limits

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# An exchange stops being writable when this much is queued, and is writable again when all of it has gone.
QUEUE_BYTES = 64 * 1024

# After an early refusal, how long and how much of the rest of the request is read and thrown away.
LINGER_SECONDS = Limits().linger_seconds
LINGER_BYTES = Limits().linger_bytes

# What may stand unencoded in a path (RFC 3986, 3.3).
_PATH_SAFE = "/:@!$&'()*+,;=~-._"

log = logging.getLogger(__name__)


class AnswerBrokenOff(Exception):
    """Tells the host that the answer it has begun to send will never be complete."""


class AsgiExchange(Exchange):
    """One request of an ASGI host."""

    __slots__ = (
        "_aborted",
        "_begun",
        "_bodyless",
        "_closed",
        "_outgoing",
        "_queued_bytes",
        "_waiting",
        "_wake",
    )

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._outgoing: deque[Message] = deque()
        self._queued_bytes = 0
        self._waiting = False  # for the queue to empty
        self._wake = asyncio.Event()
        self._begun = False
        self._bodyless = False
        self._closed = False
        self._aborted = False

    def respond(self, status: int, headers: Headers, body: Body = b"") -> None:
        if self._closed:
            return
        pieces = [body] if isinstance(body, bytes) else [bytes(piece) for piece in body]
        size = sum(map(len, pieces))
        # 204 and 304 say no length (RFC 9110, 8.6), and HEAD only one that a GET would have.
        if status not in (204, 304) and (size or self.request.method != "HEAD"):
            headers = [*headers, (b"content-length", b"%d" % size)]
        self.begin(status, headers)
        if size <= QUEUE_BYTES:
            pieces = [b"".join(pieces)]
        for piece in pieces:
            self.send(piece)
        self.end()

    def begin(self, status: int, headers: Headers) -> None:
        if self._closed:
            return
        assert not self._begun, "an answer was begun already"
        self._begun = True
        if self.request.tally is not None:
            self.request.tally[status] += 1
        self._bodyless = self.request.method == "HEAD" or status in (204, 304)
        common = SECURITY_HEADERS if is_plain_write(self.request) else COMMON_HEADERS
        self._put({"type": "http.response.start", "status": status, "headers": [*headers, *common]})

    def send(self, data: bytes) -> None:
        if self._closed or self._bodyless or not data:
            return
        assert self._begun, "send comes after begin"
        self._queued_bytes += len(data)
        self._waiting = self._queued_bytes >= QUEUE_BYTES
        self._put({"type": "http.response.body", "body": data, "more_body": True})

    def end(self) -> None:
        if self._closed:
            return
        assert self._begun, "end comes after begin"
        self._closed = True
        self.on_closed = self.on_writable = None
        last = self._outgoing[-1] if self._outgoing else None
        if last is not None and "more_body" in last:
            last["more_body"] = False
            self._wake.set()
        else:
            self._put({"type": "http.response.body", "body": b"", "more_body": False})

    def abort(self) -> None:
        if not self._closed:
            self._aborted = True
            self.peer_gone()

    @property
    def writable(self) -> bool:
        return not self._closed and self._queued_bytes < QUEUE_BYTES

    @property
    def closed(self) -> bool:
        return self._closed

    # For the coroutine of the request

    def peer_gone(self) -> None:
        """Nobody will take the rest of the answer."""
        if self._closed:
            return
        self._closed = True
        self._wake.set()
        on_closed = self.on_closed
        self.on_closed = self.on_writable = None
        if on_closed is not None:
            try:
                on_closed()
            except Exception:
                log.exception("%s %r failed to let go of its peer", self.request.method, self.request.path)

    async def deliver(self, receive: Receive, send: Send) -> None:
        """Until the answer has ended or the peer has gone."""
        watcher: asyncio.Task[None] | None = None
        try:
            while True:
                await self._send_queued(send)
                if self._aborted:
                    raise AnswerBrokenOff
                if self._closed:
                    return
                # Most answers are complete at once, and then there is nothing to watch for.
                if watcher is None:
                    watcher = asyncio.create_task(self._watch(receive))
                await self._wake.wait()
                self._wake.clear()
        finally:
            if watcher is not None:
                watcher.cancel()
            self.peer_gone()

    async def _send_queued(self, send: Send) -> None:
        while self._outgoing and not self._aborted:
            message = self._outgoing.popleft()
            try:
                await send(message)
            except OSError:  # what ASGI 2.4 asks of a host whose peer has gone
                self._outgoing.clear()
                self.peer_gone()
                return
            self._queued_bytes -= len(message.get("body", b""))
            if self._waiting and not self._outgoing:
                self._waiting = False
                if self.on_writable is not None and not self._closed:
                    self.on_writable()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._outgoing.clear()
        self.peer_gone()

    def _put(self, message: Message) -> None:
        self._outgoing.append(message)
        self._wake.set()


class AsgiApp:
    """An ASGI application around one `Handler`, which lives from `start` to `stop`.

    A host with a lifespan calls both. An application that mounts this one gets no lifespan to hand on, so it
    takes `lifespan` into its own. If it does not, the first request starts the handler, and nobody stops it.
    """

    def __init__(self, handler_factory: Callable[[], AbstractAsyncContextManager[Handler]]) -> None:
        self._factory = handler_factory
        self._starting = asyncio.Lock()
        self._stack: AsyncExitStack | None = None
        self._handler: Handler | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            handler = self._handler or await self.start()
            await _serve(handler, scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close"})  # before it is accepted: the peer sees a 403
        else:
            raise NotImplementedError(f"no {scope['type']} here")

    async def start(self) -> Handler:
        async with self._starting:
            if self._handler is None:
                stack = AsyncExitStack()
                self._handler = await stack.enter_async_context(self._factory())
                self._stack = stack
            return self._handler

    async def stop(self) -> None:
        async with self._starting:
            self._handler = None
            stack, self._stack = self._stack, None
            if stack is not None:
                await stack.aclose()

    @asynccontextmanager
    async def lifespan(self, _outer: object = None) -> AsyncIterator[None]:
        """For the application around this one: `FastAPI(lifespan=streams.lifespan)`."""
        await self.start()
        try:
            yield
        finally:
            await self.stop()

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            phase = (await receive())["type"].removeprefix("lifespan.")
            try:
                if phase == "startup":
                    await self.start()
                else:
                    await self.stop()
            except Exception as error:
                log.exception("%s failed", phase)
                await send({"type": f"lifespan.{phase}.failed", "message": str(error)})
                return
            await send({"type": f"lifespan.{phase}.complete"})
            if phase == "shutdown":
                return


async def _serve(handler: Handler, scope: Scope, receive: Receive, send: Send) -> None:
    root, path = split_path(scope)
    request = Request(
        scope["method"],
        path,
        scope.get("query_string", b""),
        join_headers(scope["headers"]),
        scheme=scope.get("scheme", "http"),
        client=(scope.get("client") or ("",))[0] or "",
        root=root,
    )
    exchange = AsgiExchange(request)
    incoming = Incoming(receive)
    fits = await incoming.read_into(request, handler)
    if incoming.gone:
        return
    if fits:
        handler.handle(exchange)
    else:
        handler.refuse(exchange, 413, "the body is larger than this resource takes")
        send = _lingering(incoming, send)
    await exchange.deliver(receive, send)


class Incoming:
    """The body of a request, as the host hands it over."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._more = True
        self.gone = False  # the peer left before the end

    async def read_into(self, request: Request, handler: Handler) -> bool:
        """False if it is larger than it may be, or the peer has gone."""
        length = request.headers.get(b"content-length", "")
        limit = -1  # not asked for yet: most requests have no body
        if length.isdecimal() and int(length) > 0:
            limit = handler.body_limit(request)
            if int(length) > limit:
                return False
            request.sink = handler.body_sink(request)
        pieces: list[bytes] = []
        size = 0
        complete = False
        try:
            while self._more:
                data = await self._next()
                if not data:
                    continue
                if limit < 0:
                    limit = handler.body_limit(request)
                    request.sink = handler.body_sink(request)
                size += len(data)
                if size > limit:
                    return False
                if request.sink is None:
                    pieces.append(data)
                else:
                    request.sink.feed(data)
            complete = not self.gone
        finally:
            if not complete and request.sink is not None:
                sink, request.sink = request.sink, None
                sink.abandon()
        request.body = b"".join(pieces)
        return complete

    async def discard(self) -> None:
        size = 0
        while self._more and size <= LINGER_BYTES:
            size += len(await self._next())

    async def _next(self) -> bytes:
        message = await self._receive()
        self.gone = message["type"] == "http.disconnect"
        self._more = message.get("more_body", False)
        data: bytes = message.get("body", b"")
        return data


def _lingering(incoming: Incoming, send: Send) -> Send:
    """A `send` that holds the very end of an answer back until the rest of the request has been read.

    So a peer that is still sending sees the answer and no reset. Some hosts also fail, for all requests of
    an HTTP/2 connection, when data arrives for a stream whose answer has ended.
    """

    async def send_and_read(message: Message) -> None:
        if message.get("more_body", True):
            await send(message)
            return
        await send({**message, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                await incoming.discard()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return send_and_read


def split_path(scope: Scope) -> tuple[bytes, bytes]:
    """The place where the application is mounted and the path below it, percent-encoded."""
    root: str = scope.get("root_path", "").rstrip("/")
    raw: bytes | None = scope.get("raw_path")
    if raw is None:
        raw = quote(scope["path"], safe=_PATH_SAFE).encode()
    else:
        raw = raw.partition(b"?")[0]  # some hosts leave the query on it
    if root:
        # Compared decoded, segment by segment: the peer may have encoded the mount point in its own way.
        segments = raw.split(b"/")
        depth = root.count("/") + 1
        if unquote_to_bytes(b"/".join(segments[:depth])) == root.encode():
            return b"/".join(segments[:depth]), b"/".join([b"", *segments[depth:]]) or b"/"
    return quote(root, safe=_PATH_SAFE).encode(), raw or b"/"


def join_headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, str]:
    headers: dict[bytes, str] = {}
    for name, value in pairs:
        name = name.lower()
        text = value.decode("latin-1")
        headers[name] = join_repeated(name, headers[name], text) if name in headers else text
    return headers
