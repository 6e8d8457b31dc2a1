"""A scriptable upstream on loopback: it answers as told, byte by byte, and remembers what it was asked.

    upstream.on("/allowed/x", Reply(body=[b"one", gate, b"two", CUT]))

A body is a list of steps: bytes are sent as a chunk, a `threading.Event` is waited for, a number is slept,
and `CUT`, `RESET` and `HANG` end the connection early, break it, or leave it silent until we close.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Literal


class Ending(Enum):
    CUT = auto()
    RESET = auto()
    HANG = auto()


CUT, RESET, HANG = Ending.CUT, Ending.RESET, Ending.HANG
Step = bytes | threading.Event | float | Ending
PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class Received:
    """A request, as it came over the wire."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None


@dataclass(frozen=True)
class Reply:
    """How to answer. `before_headers` are steps taken first: events, pauses, endings."""

    body: Sequence[Step] = ()
    status: int = 200
    headers: Sequence[tuple[str, str]] = (("Content-Type", "text/plain"),)
    framing: Literal["chunked", "length", "close", "none"] = "chunked"
    length: int | None = None  # to be claimed instead of the true one
    before_headers: Sequence[Step] = ()


@dataclass
class Exchange:
    received: Received
    sent: int = 0  # body bytes given to the socket
    peer_gone: threading.Event = field(default_factory=threading.Event)


class Upstream:
    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self._replies: dict[str, Callable[[Received], Reply]] = {}
        self.exchanges: list[Exchange] = []
        self._arrived = threading.Condition()
        self._closing = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def on(self, path: str, reply: Reply | Callable[[Received], Reply]) -> str:
        """Answer requests for this path like so from now on; gives its URL."""
        self._replies[path] = reply if callable(reply) else lambda received: reply
        return self.url(path)

    def requests(self, path: str) -> list[Received]:
        return [each.received for each in self.exchanges if each.received.target.partition("?")[0] == path]

    def wait_for(self, path: str, count: int = 1) -> Exchange:
        """The latest exchange on this path, once there are `count` of them."""

        def found() -> list[Exchange]:
            return [each for each in self.exchanges if each.received.target.partition("?")[0] == path]

        with self._arrived:
            assert self._arrived.wait_for(lambda: len(found()) >= count, PATIENCE_SECONDS), (
                f"nobody asked {path}"
            )
        return found()[-1]

    def close(self) -> None:
        self._closing.set()
        self._listener.close()

    # One connection

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as lines:
            try:
                while (received := _read_request(lines)) is not None:
                    if not self._answer(connection, received):
                        return
            except OSError:
                pass

    def _answer(self, connection: socket.socket, received: Received) -> bool:
        """True if the connection can take another request."""
        exchange = Exchange(received)
        with self._arrived:
            self.exchanges.append(exchange)
            self._arrived.notify_all()
        make = self._replies.get(received.target.partition("?")[0])
        reply = Reply(status=404, body=[b"no such path"]) if make is None else make(received)
        try:
            for step in reply.before_headers:
                if not self._take(step, connection, exchange):
                    return False
            connection.sendall(_head(reply))
            for step in reply.body:
                if isinstance(step, bytes):
                    piece = b"%x\r\n%b\r\n" % (len(step), step) if reply.framing == "chunked" else step
                    connection.sendall(piece)
                    exchange.sent += len(step)
                elif not self._take(step, connection, exchange):
                    return False
            if reply.framing == "chunked":
                connection.sendall(b"0\r\n\r\n")
        except OSError:
            exchange.peer_gone.set()
            raise
        return reply.framing != "close"

    def _take(self, step: Step, connection: socket.socket, exchange: Exchange) -> bool:
        if isinstance(step, threading.Event):
            self._wait(step, connection, exchange)
        elif isinstance(step, int | float):
            time.sleep(step)
        elif step is RESET:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        elif step is HANG:
            self._wait(self._closing, connection, exchange)
            return False
        elif step is CUT:
            return False
        return True

    def _wait(self, event: threading.Event, connection: socket.socket, exchange: Exchange) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not event.wait(0.005) and time.monotonic() < deadline and not self._closing.is_set():
            if _has_gone(connection):
                exchange.peer_gone.set()
                raise ConnectionResetError


@contextmanager
def running_upstream() -> Iterator[Upstream]:
    upstream = Upstream()
    try:
        yield upstream
    finally:
        upstream.close()


def _head(reply: Reply) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} Whatever", *(f"{name}: {value}" for name, value in reply.headers)]
    if reply.framing == "chunked":
        lines.append("Transfer-Encoding: chunked")
    elif reply.framing == "length":
        size = sum(len(step) for step in reply.body if isinstance(step, bytes))
        lines.append(f"Content-Length: {size if reply.length is None else reply.length}")
    elif reply.framing == "close":
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _read_request(lines: object) -> Received | None:
    first = lines.readline().decode("latin-1")  # type: ignore[attr-defined]
    if not first:
        return None
    method, target, _ = first.split(" ", 2)
    headers: list[tuple[str, str]] = []
    while (line := lines.readline().decode("latin-1").rstrip("\r\n")) != "":  # type: ignore[attr-defined]
        name, _, value = line.partition(":")
        headers.append((name, value.strip()))
    length = int({name.lower(): value for name, value in headers}.get("content-length", "0"))
    return Received(method, target, headers, lines.read(length))  # type: ignore[attr-defined]


def _has_gone(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.setblocking(True)
