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
LONGEST_WAIT_SECONDS: Final = 5.0
HEADERS: Final[Headers] = [
    (CONTENT_TYPE, b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


def is_event_source(request: Request) -> bool:
    """Asked the way the HTML standard has an EventSource ask? Other clients leave the cache to itself."""
    get = request.headers.get
    return get(b"accept") == "text/event-stream" and get(b"cache-control") == "no-cache"


class TurnedAway:
    """One of those who wait. It costs its connection, which a 503 would have left open as well."""

    __slots__ = ("_exchange", "_timer", "_waiting")

    def __init__(self, exchange: Exchange, waiting: set["TurnedAway"]) -> None:
        self._exchange = exchange
        self._waiting = waiting
        self._timer: asyncio.TimerHandle | None = None

    def start(self, reason: str) -> None:
        self._waiting.add(self)
        self._exchange.on_closed = self._leave
        wait = random.uniform(SHORTEST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)  # not all at once
        self._timer = asyncio.get_running_loop().call_later(wait, self.finish)
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
