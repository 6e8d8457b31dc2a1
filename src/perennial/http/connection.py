"""One HTTP/1.1 connection: who may speak when, for how long, and how an answer leaves.

`parsing` turns bytes into requests and `answering` turns answers into bytes; here they meet a socket.
This is the hot path of every append: nothing in it makes a coroutine, a future or a timer. Time comes from
`ServerState.now`, which the server's tick moves, and the same tick calls `Connection.check`.
"""

import asyncio
import logging
import socket
import struct
from collections.abc import Sequence
from typing import Final

from perennial.http.answering import NativeExchange
from perennial.http.exchange import FAILED
from perennial.http.heads import Head
from perennial.http.limits import Limits
from perennial.http.parsing import BODY, HEAD, PIECE_BYTES, ParsedRequest, RequestReader
from perennial.http.responses import CLOSE, CONTINUE, TURNED_AWAY
from perennial.http.state import ServerState

# A peer that sends many requests ahead gets this many steps before the others have their turn.
STEPS_PER_TURN: Final = 32

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time

log = logging.getLogger(__name__)


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
        # The one being answered, or the head of the one that is in a lane.
        self._exchange: NativeExchange | Head | None = None
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
        self._reader = RequestReader(
            state.handler, state.limits, state, state.known_heads, client, state.secure
        )
        state.connections.add(self)
        if state.draining:
            self.close()
        elif len(state.connections) > state.limits.connections:
            self._turn_away()

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if self._lingering >= 0:
            self._lingering -= len(data)
            if self._lingering < 0:
                self.close()
        elif self._exchange is not None or self._held or self.blocked or reader.ready:
            self._hold(data)
        elif not self._closing and (head := reader.recall(data)) is not None:
            body = data[head.size :]
            if head.lane is None:
                self._handle(reader.repeat(head, body))
                return
            self._exchange = head
            try:
                head.lane.enter(self, body)
            except Exception:
                self._break_down(head)
        elif len(data) <= PIECE_BYTES:
            reader.feed(data)
            self._advance()
        else:
            self._hold(data)
            self._advance()

    def eof_received(self) -> bool:
        """True keeps our side open."""
        if self.state.secure:
            return False
        exchange = self._exchange
        if exchange is not None and exchange.begun:
            self._transport.abort()  # most likely a follower that left; what is unsent, it will not read
        elif exchange is not None or self._reader.ready or self._held:
            self._half_closed = True
            self._since = self.state.now
            return True
        return False

    def pause_writing(self) -> None:
        self.blocked = True

    def resume_writing(self) -> None:
        self.blocked = False
        exchange = self._exchange
        if exchange is None:
            self._advance()
        elif isinstance(exchange, NativeExchange) and exchange.on_writable is not None:
            try:
                exchange.on_writable()
            except Exception:
                self._break_off(exchange)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self.state.forget(self)
        self._held.clear()
        self._reader.close()
        exchange, self._exchange = self._exchange, None
        if isinstance(exchange, NativeExchange):
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
        if request.refusal is not None:
            self._linger()
        elif not request.keep_alive or self.state.draining:
            self._leave()
        else:
            self._go_on()

    # What a lane calls

    def acknowledge(self, headers: bytes) -> bool:
        if self._exchange is None:
            return False
        self._exchange = None
        state = self.state
        if state.draining:
            self.write(state.plain_heads[204] + headers + CLOSE + b"\r\n")
            self._leave()
        else:
            # As `write` and `_go_on` do: this is on every append's way.
            answer = state.plain_heads[204] + headers + b"\r\n"
            self._written += len(answer)
            self._transport.write(answer)
            reader = self._reader
            reader.since = state.now
            if reader.ready or self._held or reader.wants_continue or self._half_closed:
                self._go_on()
        return True

    def make_exchange(self) -> NativeExchange | None:
        current = self._exchange
        if isinstance(current, Head):
            current = self._exchange = NativeExchange(self._reader.repeat(current, b""), self)
        return current

    def drop(self, reset: bool) -> None:
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
        if self._exchange is None and self._reader.phase not in (HEAD, BODY) and self._lingering < 0:
            self.close()

    def close(self) -> None:
        """After what has been written; see `check` for a peer that never takes it."""
        self._closing = True
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # Steps

    def _break_down(self, head: Head) -> None:
        """In a lane."""
        log.exception("answering %s %r failed", head.method, head.path)
        if self._exchange is not None:
            # The last answer here: one that the lane asked for may still come, and find another request.
            request = self._reader.repeat(head, b"")
            request.keep_alive, request.refusal = False, (500, FAILED)
            self._handle(request)

    def _go_on(self) -> None:
        """The next request, if it is here."""
        reader = self._reader
        reader.since = self.state.now
        waits = reader.ready or self._held or reader.wants_continue or self._half_closed
        if waits and not self._advancing:
            self._advance()

    def _leave(self) -> None:
        """This was the last answer."""
        reader = self._reader
        # Bytes nobody will read would turn the close into a reset.
        if self._held or reader.ready or reader.phase in (HEAD, BODY):
            self._linger()
        else:
            self.close()

    def _advance(self) -> None:
        """Handle requests while they are complete and the peer takes its answers."""
        reader = self._reader
        ready = reader.ready
        steps = STEPS_PER_TURN
        self._advancing = True
        while self._exchange is None and not (self.blocked or self._closing or self._lingering >= 0):
            if not steps:
                asyncio.get_running_loop().call_soon(self._advance)
                break
            steps -= 1
            if ready:
                self._handle(ready.pop(0))
            elif self._held:
                self._feed_held()
            else:
                self._await_more()
                break
        self._advancing = False

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

    def _await_more(self) -> None:
        """All that came has been handled."""
        if self._half_closed:
            self.close()
        elif self._reader.wants_continue:
            self._reader.wants_continue = False
            self.write(CONTINUE)

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

    def _turn_away(self) -> None:
        """One too many: say so, unless even those who are being told are too many."""
        state = self.state
        state.turned_away += 1
        if len(state.connections) > state.limits.connections * 1.1 + 64:
            self.abort()
        else:
            self._transport.write(TURNED_AWAY)
            self._linger()

    def _linger(self) -> None:
        """Half close, and throw away what still comes until the peer closes too."""
        self._held.clear()
        self._reader.close()
        self._lingering = self.state.limits.linger_bytes
        self._since = self.state.now
        if not self.state.secure:
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
        elif waited > limits.idle_seconds:
            self.close()
