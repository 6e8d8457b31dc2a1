"""What a server answers while its store is still opening: that it is alive, and that it is not ready.

Loads next to nothing, since it answers before the rest of the server is even loaded.
"""

from typing import Any, Final

import msgspec

from perennial.http.exchange import BodySink, Exchange, Headers, Lane, Request
from perennial.http.parsing import ParsedRequest

REASON: Final = "recovering the store"
HEADERS: Final[Headers] = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"retry-after", b"1"),
]


class Recovering:
    """See `exchange.Handler`. Connections end with their answer; the next one may find the server itself."""

    def body_limit(self, request: Request) -> int:
        """No body is waited for: whatever is in it, the answer is the same."""
        return 0

    def body_sink(self, request: Request) -> BodySink | None:
        return None

    def lane(self, request: Request) -> Lane | None:
        return None

    def handle(self, exchange: Exchange) -> None:
        request = exchange.request
        if isinstance(request, ParsedRequest):
            request.keep_alive = False
        if is_for_events(request):
            # An EventSource gives up for good on any answer but 200, and tries again on none.
            exchange.abort()
        elif request.path == b"/healthz":
            exchange.respond(200, [(b"content-type", b"text/plain")], b"ok\n")
        elif request.path == b"/readyz":
            _respond(exchange, 503, {"ready": False, "reasons": [REASON]})
        else:
            _fail(exchange, 503, "RECOVERING", f"the server is {REASON}: try again in a moment")

    def refuse(self, exchange: Exchange, status: int, reason: str) -> None:
        if status == 413:  # of our own making: see `body_limit`
            self.handle(exchange)
        else:
            _fail(exchange, status, "BAD_REQUEST", reason)

    def drain(self) -> None:
        """Nothing here outlasts its request."""


def is_for_events(request: Request) -> bool:
    wanted = request.headers.get(b"accept", "")
    return "text/event-stream" in wanted or b"live=sse" in request.query.split(b"&")


def _fail(exchange: Exchange, status: int, code: str, message: str) -> None:
    _respond(exchange, status, {"error": {"code": code, "message": message}})


def _respond(exchange: Exchange, status: int, body: Any) -> None:
    exchange.respond(status, HEADERS, msgspec.json.encode(body))
