"""Requests in a row on one connection, sent ahead of their answers; answers come back in the same order.

What the requests mean is theirs to judge. A lane keeps order, waits when told to, outlives its connection.
"""

import socket
import ssl
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Protocol
from urllib.parse import urlsplit

import httptools

from perennial.spark.errors import Unreachable
from perennial.spark.http import PASSING, TIMEOUT_SECONDS, Answer, Backoff, describe, refusal, retry_after
from perennial.spark.options import Target

MOST_AHEAD: Final = 64
MOST_AHEAD_BYTES: Final = 4 << 20


class Exchange(Protocol):
    """A request, and what to make of its answer."""

    @property
    def key(self) -> str:
        """Exchanges with the same key depend on each other's order."""
        ...

    def encode(self, target: Target) -> bytes: ...

    def settle(self, answer: Answer, after_a_repeat: bool) -> bool:
        """True: done. False: send it again. Raises when there is no hope.

        `after_a_repeat`: an earlier exchange of the same key has to be sent again.
        """
        ...


@dataclass(order=True, slots=True)
class _Turn:
    """An exchange and its place in the order of the lane, which it keeps when it has to be repeated."""

    number: int
    exchange: Exchange = field(compare=False)
    size: int = field(default=0, compare=False)


class Lane:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._socket: socket.socket | None = None
        self._numbers = count()
        self._sent: deque[_Turn] = deque()
        self._sent_bytes = 0
        self._again: list[_Turn] = []
        self._refused: Answer | None = None  # the server asked for a pause
        self._answers = _Answers()
        self._backoff = Backoff(target.retry_seconds)

    def send(self, exchange: Exchange) -> None:
        """Returns when the request is on its way; earlier ones may have been answered meanwhile."""
        while self._again or self._is_full:
            self._advance()
        self._transmit(_Turn(next(self._numbers), exchange))

    def finish(self) -> None:
        """Returns when every request has been answered."""
        while self._sent or self._again:
            self._advance()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # Steps

    @property
    def _is_full(self) -> bool:
        return len(self._sent) >= MOST_AHEAD or self._sent_bytes >= MOST_AHEAD_BYTES

    def _advance(self) -> None:
        """Take in one answer or, when none is due, send again what has to be."""
        if self._sent:
            self._receive()
            return
        if self._refused is not None:
            if not self._backoff.wait(retry_after(self._refused.headers)):
                raise refusal(self._target, self._refused)
            self._refused = None
        waiting = deque(sorted(self._again))
        self._again = []
        while waiting and not self._again and not self._is_full:
            self._transmit(waiting.popleft())
        self._again += waiting

    def _transmit(self, turn: _Turn) -> None:
        data = turn.exchange.encode(self._target)
        turn.size = len(data)
        self._sent.append(turn)
        self._sent_bytes += turn.size
        try:
            if self._socket is None:
                self._socket = _connect(self._target)
                self._answers = _Answers()
            self._socket.sendall(data)
        except OSError as error:
            self._lost(error)

    def _receive(self) -> None:
        assert self._socket is not None, "something was sent"
        try:
            answer = self._answers.next(self._socket)
        except (OSError, httptools.HttpParserError) as error:
            self._lost(error)
            return
        turn = self._sent.popleft()
        self._sent_bytes -= turn.size
        if answer.status in PASSING:
            self._again.append(turn)
            self._refused = answer
            return
        key = turn.exchange.key
        behind = any(other.exchange.key == key and other < turn for other in self._again)
        if turn.exchange.settle(answer, behind):
            self._backoff.reset()
        else:
            self._again.append(turn)

    def _lost(self, error: Exception) -> None:
        """Whether the unanswered requests arrived is not known. They can be repeated, so they are."""
        self.close()
        self._again += self._sent
        self._sent.clear()
        self._sent_bytes = 0
        if not self._backoff.wait():
            reason = describe(error)
            raise Unreachable(self._target.url, reason, self._backoff.waited_seconds) from None


class _Answers:
    """Answers cut from a connection's bytes; the callbacks are httptools'."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._ready: deque[Answer] = deque()
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    def next(self, connection: socket.socket) -> Answer:
        while not self._ready:
            data = connection.recv(256 * 1024)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self._parser.feed_data(data)
        return self._ready.popleft()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        self._ready.append(Answer(self._parser.get_status_code(), self._headers, b"".join(self._body)))
        self._headers, self._body = {}, []


def _connect(target: Target) -> socket.socket:
    parts = urlsplit(target.url)
    assert parts.hostname is not None, "checked with the options"
    port = parts.port or (443 if parts.scheme == "https" else 80)
    connection = socket.create_connection((parts.hostname, port), TIMEOUT_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if parts.scheme == "https":
        return ssl.create_default_context().wrap_socket(connection, server_hostname=parts.hostname)
    return connection
