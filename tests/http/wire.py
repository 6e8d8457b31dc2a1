"""A connection without a network: bytes in, bytes out, and a clock that is moved by hand."""

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Any

from perennial.http.connection import Connection
from perennial.http.exchange import BodySink, Exchange, Lane, Request
from perennial.http.limits import Limits
from perennial.http.state import ServerState

HIGH_WATER = 64 * 1024

GET = b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


class Sink:
    """Keeps what a body sink is given."""

    def __init__(self) -> None:
        self.fed: list[bytes] = []
        self.abandoned = 0

    def feed(self, data: bytes) -> None:
        self.fed.append(data)

    def abandon(self) -> None:
        self.abandoned += 1


def echo(exchange: Exchange) -> None:
    request = exchange.request
    exchange.respond(200, [], b" ".join([request.method.encode(), request.path, request.body]))


class Application:
    """The handler of most tests: answers with `answer`, or leaves exchanges pending when there is none."""

    def __init__(
        self,
        answer: Callable[[Exchange], None] | None = echo,
        *,
        body_limit: int = 1_000_000,
        sink: BodySink | None = None,
    ) -> None:
        self.answer = answer
        self.limit = body_limit
        self.sink = sink
        self.seen: list[Request] = []
        self.pending: list[Exchange] = []
        self.refusals: list[tuple[int, str]] = []

    def body_limit(self, request: Request) -> int:
        return self.limit

    def body_sink(self, request: Request) -> BodySink | None:
        return self.sink

    def lane(self, request: Request) -> Lane | None:
        return None

    def handle(self, exchange: Exchange) -> None:
        self.seen.append(exchange.request)
        if self.answer is None:
            self.pending.append(exchange)
        else:
            self.answer(exchange)

    def refuse(self, exchange: Exchange, status: int, reason: str) -> None:
        self.refusals.append((status, reason))
        exchange.respond(status, [], reason.encode())

    def drain(self) -> None:
        for exchange in self.pending:
            if not exchange.closed:
                exchange.end()


class FakeTransport(asyncio.Transport):
    """Takes everything at once, until `stuck`: then bytes pile up until `release`."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Connection | None = None
        self.calls: list[list[bytes | memoryview]] = []  # the buffers of each write
        self.sent = b""
        self.unsent = b""
        self.stuck = False
        self.reading = True
        self.closing = False
        self.aborted = False
        self.eof = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 50000) if name == "peername" else default

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        assert not self.eof, "write after write_eof"
        pieces = list(list_of_data)
        self.calls.append(pieces)
        if not self.stuck:
            self.sent += b"".join(pieces)
            return
        before = len(self.unsent)
        self.unsent += b"".join(pieces)
        if before <= HIGH_WATER < len(self.unsent):
            assert self.protocol is not None
            self.protocol.pause_writing()

    def release(self, size: int | None = None) -> None:
        """The peer takes `size` bytes, or all and whatever follows."""
        assert self.protocol is not None
        before = len(self.unsent)
        size = before if size is None else size
        self.sent += self.unsent[:size]
        self.unsent = self.unsent[size:]
        self.stuck = bool(self.unsent)
        if before > HIGH_WATER and not self.unsent:
            self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def write_eof(self) -> None:
        self.eof = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True
        self.unsent = b""


class Wire:
    def __init__(self, app: Application | None = None, limits: Limits | None = None) -> None:
        self.app = app or Application()
        self.state = ServerState(self.app, limits or Limits(), now=1000.0, unix_time=0.0)
        self.transport = FakeTransport()
        self.connection = Connection(self.state)
        self.transport.protocol = self.connection
        self.lost = False
        self.connection.connection_made(self.transport)

    def feed(self, *pieces: bytes) -> bytes:
        """What the connection sends in answer to these bytes."""
        for piece in pieces:
            if not self.transport.closing:
                assert self.transport.reading, "nobody reads"
                self.connection.data_received(piece)
        return self.take()

    def end_of_file(self) -> bytes:
        if not self.connection.eof_received():
            self.transport.close()
        return self.take()

    def wait(self, seconds: float) -> bytes:
        """What the connection sends while this time passes, one tick after the other."""
        for _ in range(round(seconds * 2)):
            self.state.now += 0.5
            if not self.lost:
                self.connection.check(self.state.now)
                self._settle()
        return self.take()

    def take(self) -> bytes:
        self._settle()
        sent, self.transport.sent = self.transport.sent, b""
        return sent

    @property
    def open(self) -> bool:
        """Neither closed nor going to close once everything is sent."""
        return not self.transport.closing

    def _settle(self) -> None:
        if self.transport.closing and not self.transport.unsent and not self.lost:
            self.lost = True
            self.connection.connection_lost(None)


def later(limits: Limits | None = None) -> Wire:
    """A connection whose application answers when the test does."""
    return Wire(Application(answer=None), limits)


def follow(request: bytes = GET % 1) -> tuple[Wire, Exchange, bytes]:
    """A connection on which an answer has begun, and the head of that answer."""
    wire = later()
    wire.feed(request)
    exchange = wire.app.pending[0]
    exchange.begin(200, [(b"content-type", b"text/event-stream")])
    return wire, exchange, wire.take()


def statuses(data: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", data)]


def split(answer: bytes) -> tuple[bytes, bytes]:
    """Head and body of a single answer."""
    head, separator, body = answer.partition(b"\r\n\r\n")
    assert separator
    return head + b"\r\n", body


def header(answer: bytes, name: bytes) -> bytes | None:
    found = re.search(rb"\r\n%b: (.*?)\r\n" % re.escape(name), split(answer)[0])
    return found[1] if found else None
