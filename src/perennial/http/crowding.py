"""Turning an EventSource away so that it comes back.

It gives up for good on any answer but 200, whatever `Retry-After` says, and asks again some seconds after a
200 has ended (HTML standard, 9.2.3). So it gets a 200 without events. That ends after a while, not at once:
pages that go on by offset ask again themselves whenever an answer has ended, and would do nothing else.
"""

import asyncio
import random
from typing import Final

from perennial.http.exchange import Exchange, Headers, Request
from perennial.protocol.headers import CONTENT_TYPE

SHORTEST_WAIT_SECONDS: Final = 1.0
SPREAD_SECONDS: Final = 4.0
LONGEST_HOLD_SECONDS: Final = 25.0  # what is silent for longer, others on the way may cut off
HEADERS: Final[Headers] = [
    (CONTENT_TYPE, b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


def is_event_source(request: Request) -> bool:
    """Asked the way the HTML standard has an EventSource ask? Other clients leave the cache to itself."""
    get = request.headers.get
    as_events = get(b"accept") == "text/event-stream" and get(b"cache-control") == "no-cache"
    return as_events and request.method == "GET"


class WaitingRoom:
    """Where those wait who were turned away, until they are sent home or the server stops."""

    def __init__(self) -> None:
        self._waiting: set[TurnedAway] = set()

    def take(self, exchange: Exchange, reason: str, least_seconds: float = SHORTEST_WAIT_SECONDS) -> None:
        wait = min(least_seconds, LONGEST_HOLD_SECONDS) + random.uniform(0, SPREAD_SECONDS)  # not all at once
        TurnedAway(exchange, self._waiting).start(reason, wait)

    def clear(self) -> None:
        for visitor in tuple(self._waiting):
            visitor.finish()


class TurnedAway:
    """One of those who wait. It costs its connection, which a 503 would have left open as well."""

    __slots__ = ("_exchange", "_timer", "_waiting")

    def __init__(self, exchange: Exchange, waiting: set["TurnedAway"]) -> None:
        self._exchange = exchange
        self._waiting = waiting
        self._timer: asyncio.TimerHandle | None = None

    def start(self, reason: str, wait_seconds: float) -> None:
        self._waiting.add(self)
        self._exchange.on_closed = self._leave
        self._timer = asyncio.get_running_loop().call_later(wait_seconds, self.finish)
        self._exchange.begin(200, HEADERS)
        self._exchange.send(f": {reason}\n\n".encode())

    def finish(self) -> None:
        self._leave()
        if not self._exchange.closed:
            self._exchange.end()

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.discard(self)
