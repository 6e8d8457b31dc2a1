"""One HTTP/1.1 connection: who may speak when, for how long, and how an answer leaves.

`parsing` turns bytes into requests and `responses` makes the bytes of answers; here they meet a socket.
This is the hot path of every append: nothing in it makes a coroutine, a future or a timer. Time comes from
`ServerState.now`, which the server's tick moves, and the same tick calls `Connection.check`.
"""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable, Sequence

from perennial.http.exchange import Body, Exchange, Handler, Headers, SharedChunk
from perennial.http.limits import Limits
from perennial.http.parsing import BODY, DONE, HEAD, PIECE_BYTES, ParsedRequest, RequestReader, abandon_body
from perennial.http.responses import (
    CHUNKED,
    CLOSE,
    CONTINUE,
    JOIN_BYTES,
    KEEP_ALIVE,
    LAST_CHUNK,
    Heads,
    encode_headers,
    frame_chunk,
)

log = logging.getLogger(__name__)

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class ServerState:
    """What all connections of a server share."""

    __slots__ = ("connections", "draining", "handler", "heads", "limits", "now", "on_empty")

    def __init__(self, handler: Handler, limits: Limits, now: float, unix_time: float) -> None:
        self.handler = handler
        self.limits = limits
        self.heads = Heads(unix_time)
        self.now = now  # of the monotonic clock, at the last tick
        self.connections: set[Connection] = set()
        self.draining = False
        self.on_empty: Callable[[], None] | None = None  # the last connection has gone

    def forget(self, connection: "Connection") -> None:
        self.connections.discard(connection)
        if not self.connections and self.on_empty is not None:
            self.on_empty()


class NativeExchange(Exchange):
    """One request of a connection. It lets go of the connection when its answer has ended."""

    __slots__ = ("_begun", "_chunked", "_connection")

    def __init__(self, request: ParsedRequest, connection: "Connection") -> None:
        self.request: ParsedRequest = request
        self.on_closed = None
        self.on_writable = None
        self._connection: Connection | None = connection
        self._begun = False
        self._chunked = False

    def respond(self, status: int, headers: Headers, body: Body = b"") -> None:
        connection = self._connection
        if connection is None:
            return
        assert not self._begun, "an answer was begun already"
        state = connection.state
        request = self.request
        parts: list[bytes | memoryview] = [state.heads[status]]
        if headers:
            parts.append(encode_headers(headers))
        if not request.keep_alive or state.draining:
            parts.append(CLOSE)
        elif request.old:
            parts.append(KEEP_ALIVE)
        size = 0
        if status == 204 or status == 304:
            parts.append(b"\r\n")  # which may not say a length (RFC 9110, 8.6)
        else:
            size = len(body) if type(body) is bytes else sum(map(len, body))  # type: ignore[arg-type]
            if request.method != "HEAD":
                parts.append(b"content-length: %d\r\n\r\n" % size)
                if type(body) is bytes:
                    parts.append(body)
                else:
                    parts += body  # type: ignore[arg-type]
            else:
                # The length a GET would have, if the application knows it.
                parts.append(b"content-length: %d\r\n\r\n" % size if size else b"\r\n")
                size = 0
        if size <= JOIN_BYTES:
            connection.write(b"".join(parts))
        else:
            connection.write_many(parts)
        self._connection = None
        connection.answered(request)

    def begin(self, status: int, headers: Headers) -> None:
        connection = self._connection
        if connection is None:
            return
        assert not self._begun, "an answer was begun already"
        self._begun = True
        request = self.request
        has_body = request.method != "HEAD" and status != 204 and status != 304
        self._chunked = has_body and not request.old
        if has_body and request.old:
            request.keep_alive = False  # the end of the connection is the end of the body
        head = connection.state.heads[status] + encode_headers(headers)
        if self._chunked:
            head += CHUNKED
        if not request.keep_alive or connection.state.draining:
            head += CLOSE
        elif request.old:
            head += KEEP_ALIVE
        connection.write(head + b"\r\n")

    def send(self, data: bytes) -> None:
        connection = self._connection
        if connection is None:
            return
        assert self._begun, "send comes after begin"
        if self._chunked:
            if len(data) <= JOIN_BYTES:
                connection.write(frame_chunk(data))
            else:
                connection.write_many((b"%x\r\n" % len(data), data, b"\r\n"))
        elif self._has_body:
            connection.write(data)

    def send_shared(self, chunk: SharedChunk) -> None:
        connection = self._connection
        if connection is None:
            return
        if not self._chunked:
            self.send(chunk.data)
            return
        framed = chunk.framed
        if framed is None:
            framed = chunk.framed = frame_chunk(chunk.data)
        connection.write(framed)

    def end(self) -> None:
        connection = self._connection
        if connection is None:
            return
        assert self._begun, "end comes after begin"
        if self._chunked:
            connection.write(LAST_CHUNK)
        self._connection = None
        connection.answered(self.request)

    def abort(self) -> None:
        connection = self._connection
        if connection is not None:
            # A chunked answer without its last chunk is visibly incomplete. One that ends with the
            # connection is not, unless the connection is reset.
            connection.drop(reset=self._begun and not self._chunked)
            self.peer_gone()

    @property
    def writable(self) -> bool:
        return self._connection is not None and not self._connection.blocked

    @property
    def closed(self) -> bool:
        return self._connection is None

    @property
    def begun(self) -> bool:
        return self._begun

    @property
    def _has_body(self) -> bool:
        # Begun without chunks: either HTTP/1.0, where the answer ends with the connection, or no body at all.
        return self.request.old and self.request.method != "HEAD"

    def peer_gone(self) -> None:
        self._connection = None
        if self.on_closed is not None:
            try:
                self.on_closed()
            except Exception:
                log.exception("%s %r failed to let go of its peer", self.request.method, self.request.path)


class Connection(asyncio.Protocol):
    """Requests are answered one at a time, in order; what the peer sends meanwhile waits unparsed."""

    __slots__ = (
        "_advancing",
        "_closing",
        "_drained",
        "_exchange",
        "_half_closed",
        "_held",
        "_held_bytes",
        "_lingering",
        "_reader",
        "_since",
        "_stalled_since",
        "_transport",
        "_written",
        "blocked",
        "state",
    )

    _transport: asyncio.Transport
    _reader: RequestReader

    def __init__(self, state: ServerState) -> None:
        self.state = state
        self.blocked = False  # the peer reads slower than we write
        self._exchange: NativeExchange | None = None  # the one being answered
        self._held: list[bytes | memoryview] = []  # bytes that came before their turn
        self._held_bytes = 0
        self._advancing = False

        self._closing = False
        self._half_closed = False
        self._lingering = -1  # how many bytes may still be thrown away; -1: not lingering
        self._since = 0.0  # when lingering or the half-closed state began

        self._written = 0  # bytes given to the transport
        self._drained = -1  # bytes it had got rid of when last looked at
        self._stalled_since = 0.0

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream has a stream's transport
        peer = transport.get_extra_info("peername")
        client = str(peer[0]) if isinstance(peer, tuple) else ""
        state = self.state
        self._reader = RequestReader(state.handler, state.limits, state, client)
        state.connections.add(self)
        if state.draining:
            self.close()

    def data_received(self, data: bytes) -> None:
        if self._lingering >= 0:
            self._lingering -= len(data)
            if self._lingering < 0:
                self.close()
        elif self._exchange is not None or self._held or self.blocked:
            self._hold(data)
        elif len(data) <= PIECE_BYTES:
            self._reader.feed(data)
            self._advance()
        else:
            self._held.append(data)
            self._held_bytes += len(data)
            self._advance()

    def eof_received(self) -> bool:
        """True keeps our side open."""
        exchange = self._exchange
        if exchange is None or exchange.begun:
            return False
        self._half_closed = True
        self._since = self.state.now
        return True

    def pause_writing(self) -> None:
        self.blocked = True

    def resume_writing(self) -> None:
        self.blocked = False
        exchange = self._exchange
        if exchange is None:
            self._advance()
        elif exchange.on_writable is not None:
            try:
                exchange.on_writable()
            except Exception:
                self._break_off(exchange)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self.state.forget(self)
        self._held.clear()
        self._reader.close()
        for request in self._reader.ready:
            abandon_body(request)
        self._reader.ready.clear()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.peer_gone()

    # What an exchange calls

    def write(self, data: bytes) -> None:
        self._written += len(data)
        self._transport.write(data)

    def write_many(self, pieces: Sequence[bytes | memoryview]) -> None:
        self._written += sum(map(len, pieces))
        self._transport.writelines(pieces)

    def answered(self, request: ParsedRequest) -> None:
        self._exchange = None
        reader = self._reader
        if not request.keep_alive or self.state.draining:
            # Bytes nobody will read would turn the close into a reset.
            if request.refusal is not None or self._held or reader.ready or reader.phase == BODY:
                self._linger()
            else:
                self.close()
            return
        reader.since = self.state.now
        if (reader.ready or self._held or self._half_closed) and not self._advancing:
            self._advance()

    def drop(self, reset: bool) -> None:
        """Give the connection up in the middle of an answer."""
        self._exchange = None
        if reset:
            sock = self._transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._closing = True
            self._transport.abort()
        else:
            self.close()

    # What the server calls

    def check(self, now: float) -> None:
        """Time has passed: is the peer still worth waiting for?"""
        limits = self.state.limits
        unsent = self._transport.get_write_buffer_size()
        if unsent:
            drained = self._written - unsent
            if drained != self._drained:
                self._drained = drained
                self._stalled_since = now
            elif now - self._stalled_since > limits.stalled_seconds:
                self._transport.abort()
            return
        if self._closing:
            return
        if self._lingering >= 0:
            if now - self._since > limits.linger_seconds:
                self.close()
        elif self._exchange is not None:
            if self._half_closed and now - self._since > limits.half_closed_seconds:
                self._transport.abort()
        else:
            self._check_reading(now - self._reader.since, limits)

    def drain(self) -> None:
        """The server is going away: answer what has begun, then close. `ServerState.draining` is set."""
        if self._exchange is None and self._reader.phase not in (HEAD, BODY) and self._lingering < 0:
            self.close()

    def close(self) -> None:
        """After what has been written; see `check` for a peer that never takes it."""
        self._closing = True
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # Steps

    def _advance(self) -> None:
        """Handle requests while they are complete and the peer takes its answers."""
        reader = self._reader
        ready = reader.ready
        self._advancing = True
        while self._exchange is None and not (self.blocked or self._closing or self._lingering >= 0):
            if ready:
                self._handle(ready.pop(0))
            elif self._held:
                self._feed_held()
            else:
                if reader.wants_continue:
                    reader.wants_continue = False
                    self.write(CONTINUE)
                break
        self._advancing = False
        if self._half_closed and self._exchange is None and not self._closing:
            self.close()  # nothing more can come

    def _handle(self, request: ParsedRequest) -> None:
        self._exchange = exchange = NativeExchange(request, self)
        handler = self.state.handler
        try:
            if request.refusal is None:
                handler.handle(exchange)
            else:
                handler.refuse(exchange, *request.refusal)
        except Exception:
            self._break_off(exchange)

    def _break_off(self, exchange: NativeExchange) -> None:
        log.exception("answering %s %r failed", exchange.request.method, exchange.request.path)
        if exchange.begun:
            exchange.abort()
        else:
            exchange.request.keep_alive = False
            exchange.respond(500, [])

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > self.state.limits.pipeline_bytes:
            self._transport.pause_reading()

    def _feed_held(self) -> None:
        """Parse one piece of what waits."""
        data = self._held[0]
        piece = memoryview(data)[:PIECE_BYTES]
        if len(piece) == len(data):
            del self._held[0]
            if not self._held:
                self._held_bytes = 0
                self._transport.resume_reading()
        else:
            self._held[0] = memoryview(data)[PIECE_BYTES:]
        self._reader.feed(piece)

    def _linger(self) -> None:
        self._held.clear()
        self._reader.close()
        self._lingering = self.state.limits.linger_bytes
        self._since = self.state.now
        self._transport.write_eof()
        self._transport.resume_reading()

    def _check_reading(self, waited: float, limits: Limits) -> None:
        reader = self._reader
        if reader.phase == HEAD:
            if waited > limits.header_seconds:
                reader.refuse(408, "the headers took too long")
                self._advance()
        elif reader.phase == BODY:
            if waited > limits.body_seconds:
                reader.refuse(408, "the body took too long")
                self._advance()
        elif waited > limits.idle_seconds or reader.phase == DONE:
            self.close()
