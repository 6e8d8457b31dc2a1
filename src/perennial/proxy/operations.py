"""What the proxy does: forward a request, keep the response in a stream, end it early, forget it."""

import asyncio
import logging
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from perennial.protocol.frames import encode_error
from perennial.protocol.names import PROXY_BUCKET
from perennial.proxy.allowlist import Allowlist, UpstreamUrl
from perennial.proxy.callers import Callers, Place
from perennial.proxy.errors import ConnectRejected, Redirected, Stopping, StorageFailed, UpstreamRefused
from perennial.proxy.guard import Guard
from perennial.proxy.ledger import Ledger
from perennial.proxy.responses import ResponseWriter
from perennial.proxy.signing import Signer, load_keys
from perennial.service.streams import StreamService
from perennial.settings import Settings

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver

    from perennial.proxy.upstream import Upstream, Upstreams

log = logging.getLogger("perennial.proxy")

# Fixed for ever: the streams of all sessions are found through it.
SESSION_NAMESPACE: Final = uuid.UUID("6f1c1f7e-52c8-5b1e-9d0a-3c4c0f0e8a55")


class Forward(msgspec.Struct, frozen=True):
    """A request on its way to an upstream that the allowlist has admitted."""

    method: str
    url: UpstreamUrl
    headers: list[tuple[str, str]]
    body: bytes
    caller: str


class Opened(msgspec.Struct, frozen=True):
    """A response that is being written to a stream."""

    stream_id: str
    response_id: int
    content_type: str | None


def session_stream_id(session_id: str) -> str:
    return str(uuid.uuid5(SESSION_NAMESPACE, session_id))


def is_session_stream(stream_id: str) -> bool:
    """Was it created by a connect? Its id says so: those are derived (version 5), all others are random."""
    try:
        return uuid.UUID(stream_id).version == 5
    except ValueError:
        return False


def _upstreams(settings: Settings, resolver: "AbstractResolver | None") -> "Upstreams":
    # Loaded here: its HTTP client takes nearly as long as all the rest, and most servers ask no upstream.
    from perennial.proxy.upstream import Upstreams

    return Upstreams(Guard(settings.proxy_allow_private), settings.proxy_header_timeout, resolver)


class Proxy:
    def __init__(
        self, service: StreamService, settings: Settings, resolver: "AbstractResolver | None" = None
    ) -> None:
        self.signer = Signer(load_keys(settings.proxy_secret, Path(settings.data)))
        self.allowlist = Allowlist(settings.proxy_allow)
        self._ledger = Ledger(service)
        self._upstreams = _upstreams(settings, resolver) if settings.proxy_allow else None
        self._callers = Callers(settings.proxy_max_upstreams)
        self._idle_seconds = settings.proxy_idle_timeout
        self._active: dict[str, set[ResponseWriter]] = {}
        self._asking: set[asyncio.Task[object]] = set()
        self._draining = False
        service.before_close[PROXY_BUCKET] = self._before_close

    # Operations

    async def create(self, forward: Forward) -> Opened:
        return await self._open(forward, str(uuid.uuid4()), new_stream=True)

    async def append(self, stream_id: str, forward: Forward) -> Opened:
        return await self._open(forward, stream_id, new_stream=False)

    def check_appendable(self, stream_id: str) -> None:
        """Raises `NoSuchStream` or `StreamIsClosed`."""
        self._ledger.check(stream_id)

    async def connect(self, stream_id: str, auth: Forward | None) -> bool:
        """True if the session's stream was created by this, False if it was there."""
        if auth is not None:
            with self._callers.visit(auth.caller):
                upstream = await self._ask(auth)
                upstream.close()
            if not 200 <= upstream.status < 300:
                raise ConnectRejected("the auth endpoint does not allow this session")
        return await self._ledger.ensure(stream_id)

    async def abort(self, stream_id: str) -> None:
        """End every response of the stream that is in flight; there may be none."""
        writers = list(self._active.get(stream_id, ()))
        for writer in writers:
            writer.abort()
        if not all(await asyncio.gather(*(asyncio.shield(writer.ended) for writer in writers))):
            raise StorageFailed("the upstream was cut off, but the disk does not take the Abort frame yet")

    async def delete(self, stream_id: str) -> None:
        for writer in list(self._active.get(stream_id, ())):
            writer.drop()
        await self._ledger.delete(stream_id)

    # The life of the whole

    def recover(self) -> None:
        """Write the terminal frame of every response that the last run left open."""
        message = "the server was restarted while this response was streaming"
        cut_off = list(self._ledger.left_open())
        for stream_id, response_id in cut_off:
            frame = encode_error(response_id, "UPSTREAM_ERROR", message)
            self._ledger.finish(stream_id, response_id, frame, lambda outcome, state: None)
        if cut_off:
            log.info("responses that the last stop cut off have been ended: %d", len(cut_off))

    def drain(self) -> None:
        """The server is going away: begin nothing, and end what has begun with an Error frame."""
        self._draining = True
        for task in tuple(self._asking):
            task.cancel()
        for writer in self._all_writers():
            writer.fail("UPSTREAM_ERROR", "the server was stopped while this response was streaming")

    async def stop(self) -> None:
        """After this, everything that could be written is with the committer."""
        self.drain()
        for writer in self._all_writers():
            writer.give_up()
        if self._upstreams is not None:
            await self._upstreams.close()

    # Steps

    async def _open(self, forward: Forward, stream_id: str, new_stream: bool) -> Opened:
        place = self._callers.enter(forward.caller)
        try:
            upstream = await self._ask(forward)
            try:
                writer = await self._judge(upstream, place)
                writer.start(stream_id, new_stream)
            except BaseException:
                upstream.close()
                raise
        except BaseException:
            place.leave()
            raise
        self._active.setdefault(stream_id, set()).add(writer)
        # From here on the response is piped whether or not the caller waits to hear of it.
        await asyncio.shield(writer.started)
        return Opened(stream_id, writer.response_id, upstream.headers.get("content-type"))

    async def _ask(self, forward: Forward) -> "Upstream":
        if self._draining:
            raise Stopping("the server is stopping; ask again in a moment")
        task = asyncio.current_task()
        assert task is not None, "operations run in tasks"
        assert self._upstreams is not None, "only a server with an allowlist admits a request"
        self._asking.add(task)
        try:
            return await self._upstreams.ask(forward.method, forward.url, forward.headers, forward.body)
        except asyncio.CancelledError:
            if self._draining:
                raise Stopping("the server is stopping; ask again in a moment") from None
            raise
        finally:
            self._asking.discard(task)

    async def _judge(self, upstream: "Upstream", place: Place) -> ResponseWriter:
        status = upstream.status
        if 300 <= status < 400:
            raise Redirected(status, {}, b"")
        if not 200 <= status < 300:
            raise UpstreamRefused(status, upstream.headers, await upstream.error_body())
        if self._draining:
            raise Stopping("the server is stopping; ask again in a moment")
        return ResponseWriter(self._ledger, upstream, place, self._idle_seconds, self._done)

    def _done(self, writer: ResponseWriter) -> None:
        writers = self._active.get(writer.stream_id)
        if writers is not None:
            writers.discard(writer)
            if not writers:
                del self._active[writer.stream_id]
                self._ledger.settle(writer.stream_id)

    def _before_close(self, stream_id: str) -> None:
        for writer in tuple(self._active.get(stream_id, ())):
            writer.fail("STREAM_CLOSED", "the stream was closed while this response was streaming")

    def _all_writers(self) -> list[ResponseWriter]:
        return [writer for writers in self._active.values() for writer in writers]
