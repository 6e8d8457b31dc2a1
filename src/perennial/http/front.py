"""What happens to a request before it is routed, when asked for: proxy headers, ids, rates, the log, traces.

A server without any of this set up does not come here, except for a request that brings an id of its own.
"""

import logging
import math
import re
import secrets
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

import msgspec

from perennial.http.access.gate import Gate
from perennial.http.crowding import WaitingRoom, is_event_source
from perennial.http.errors import fail
from perennial.http.exchange import Exchange, Request
from perennial.http.forwarded import TrustedProxies
from perennial.http.observed import ObservedExchange
from perennial.http.rates import Rates, address_name
from perennial.http.tracing import Tracing
from perennial.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.trace import Span

REQUEST_ID: Final = b"x-request-id"
# Whoever watches the server must get through when everyone else does not.
UNLIMITED: Final = (b"/healthz", b"/readyz", b"/metrics")
# Query parameters that are as good as a password.
SECRET_PARAMETERS: Final = ("signature", "token", "access_token", "key", "secret", "password")

_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")

Answer = Callable[[Exchange], None]


class Front:
    def __init__(
        self, settings: Settings, gate: Gate, room: WaitingRoom, tracing: Tracing | None = None
    ) -> None:
        self._gate = gate
        self._room = room
        self._tracing = tracing
        self._proxies = TrustedProxies(settings.trusted_proxies)
        self.rates = Rates(settings.rate_requests, settings.rate_bytes)
        self._log = open_log() if settings.access_log else None
        # Has every request to pass here?
        self.busy = self._proxies.any or self.rates.limited or self._log is not None or tracing is not None

    def receive(self, exchange: Exchange, answer: Answer) -> None:
        """Let `answer` have the exchange, or refuse it."""
        request = exchange.request
        exchange = self.observe(exchange)
        if self.rates.limited and request.path not in UNLIMITED:
            name = self._name(request)
            wait = self.rates.admit(name)
            if wait:
                self._throttle(exchange, wait)
                return
            self.rates.charge(name, received(request))
        answer(exchange)

    def _throttle(self, exchange: Exchange, wait_seconds: float) -> None:
        sink, exchange.request.sink = exchange.request.sink, None
        if sink is not None:
            sink.abandon()
        seconds = max(1, math.ceil(wait_seconds))
        reason = f"slow down: try again in {seconds} s"
        if is_event_source(exchange.request) and b"live=sse" in exchange.request.query:
            self._room.take(exchange, reason, seconds)
        else:
            fail(exchange, 429, "TOO_MANY_REQUESTS", reason, [(b"retry-after", b"%d" % seconds)])

    def observe(self, exchange: Exchange) -> Exchange:
        """Find out who is behind a proxy; see to it that the answer has an id, and is logged and paid for."""
        request = exchange.request
        if self._proxies.any:
            self._proxies.apply(request)
        sent_id = request.headers.get(REQUEST_ID, "")
        tracing = self._tracing
        if self._log is None and not self.rates.counts_bytes and not sent_id and tracing is None:
            return exchange
        request_id = sent_id if _SANE_ID.fullmatch(sent_id) else secrets.token_hex(8)
        span = None if tracing is None else tracing.begin(request, request_id)
        over = partial(self._over, request_id, time.perf_counter(), span)
        return ObservedExchange(exchange, [(REQUEST_ID, request_id.encode())], over)

    def _name(self, request: Request) -> str:
        if self._gate.guarded:
            identity = self._gate.identify(request)
            if identity.known:
                return identity.name
        return address_name(request.client)

    def _over(
        self,
        request_id: str,
        began_at: float,
        span: "Span | None",
        exchange: ObservedExchange,
        broken: bool,
    ) -> None:
        if span is not None and self._tracing is not None:
            self._tracing.end(span, exchange, received(exchange.request), broken)
        name = self._name(exchange.request)
        if exchange.sent and self.rates.counts_bytes:
            self.rates.charge(name, exchange.sent)
        if self._log is not None:
            request = exchange.request
            line = {
                "time": format_time(time.time()),
                "id": request_id,
                "client": request.client,
                "who": name,
                "method": request.method,
                "path": request.path.decode("latin-1"),
                "query": redact(request.query.decode("latin-1")),
                "status": exchange.status,
                "broken_off": broken,
                "bytes_in": received(request),
                "bytes_out": exchange.sent,
                "ms": round(1000 * (time.perf_counter() - began_at), 3),
            }
            self._log.info(msgspec.json.encode(line).decode())


def received(request: Request) -> int:
    """Bytes of the body, also of one that went into a sink and said its length."""
    length = request.headers.get(b"content-length", "")
    return len(request.body) or (int(length) if length.isdecimal() else 0)


def format_time(unix_time: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(unix_time))
    return f"{whole}.{int(unix_time * 1000) % 1000:03d}Z"


def redact(query: str) -> str:
    """The query without what would let a reader of the log in."""
    parts = []
    for part in query.split("&"):
        name, equals, _ = part.partition("=")
        secret = unquote(name).lower() in SECRET_PARAMETERS
        parts.append(f"{quote(unquote(name))}{equals}[redacted]" if secret else part)
    return "&".join(parts)


def open_log() -> logging.Logger:
    """Bare lines on standard output, unless the host application has other plans for this logger."""
    log = logging.getLogger("perennial.requests")
    if not log.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(message)s"))
        log.addHandler(handler)
        log.propagate = False
        log.setLevel(logging.INFO)
    return log
