"""Finds the surface for a request, and stands between handlers and the connection when something fails."""

import logging
from typing import Final

import perennial
from perennial.http.access import ServiceTokens
from perennial.http.base import StreamSurface
from perennial.http.errors import fail, reject
from perennial.http.exchange import BodySink, Exchange, Request
from perennial.http.live import LiveReads
from perennial.protocol.names import DEFAULT_BUCKET, RESERVED_PREFIX, check_stream_name, decode_path
from perennial.protocol.rejections import Malformed, StreamMissing
from perennial.service.streams import StreamService
from perennial.settings import Settings

log = logging.getLogger("perennial.http")

STREAM_ROOT: Final = "/v1/stream/"
ALLOWED_METHODS: Final = b"GET, HEAD, PUT, POST, DELETE, OPTIONS"
ALLOWED_HEADERS: Final = (
    b"content-type, authorization, if-none-match, stream-seq, stream-ttl, stream-expires-at, stream-closed, "
    b"producer-id, producer-epoch, producer-seq, "
    b"stream-forked-from, stream-fork-offset, stream-fork-sub-offset"
)
WELCOME: Final = (
    f"Perennial {perennial.__version__}, a Durable Streams server.\n"
    "Streams live at /v1/stream/{name}: PUT creates, POST appends, GET reads, HEAD looks, DELETE removes.\n"
).encode()


class Application:
    """The server as a function of exchanges; see `exchange.Handler`."""

    def __init__(self, service: StreamService, settings: Settings) -> None:
        self._settings = settings
        self._tokens = ServiceTokens(settings.auth_tokens)
        self._live = LiveReads(service, settings.long_poll_timeout, settings.sse_max_age)
        self._streams = StreamSurface(
            service,
            self._live,
            max_chunk=settings.max_chunk,
            private=bool(settings.auth_tokens),
            resolve=resolve_stream,
        )

    def body_limit(self, request: Request) -> int:
        return self._settings.max_body

    def body_sink(self, request: Request) -> BodySink | None:
        return None

    def handle(self, exchange: Exchange) -> None:
        try:
            self._route(exchange)
        except Exception:
            request = exchange.request
            log.exception("failed to answer %s %s", request.method, request.path.decode("latin-1"))
            if not exchange.closed:
                fail(exchange, 500, "INTERNAL_ERROR", "the server failed to answer; its log says why")

    def refuse(self, exchange: Exchange, status: int, reason: str) -> None:
        fail(exchange, status, REFUSALS.get(status, "BAD_REQUEST"), reason)

    def drain(self) -> None:
        self._live.drain()

    def _route(self, exchange: Exchange) -> None:
        request = exchange.request
        if request.method == "OPTIONS":
            self._preflight(exchange)
            return
        path = decode_path(request.path)
        if isinstance(path, Malformed):
            reject(exchange, path)
        elif path == "/healthz":
            exchange.respond(200, [(b"content-type", b"text/plain")], b"ok\n")
        elif not self._tokens.admit(exchange):
            return
        elif path.startswith(STREAM_ROOT):
            address = resolve_stream(path)
            if isinstance(address, tuple):
                self._dispatch(exchange, *address)
            else:
                reject(exchange, address)
        elif path == "/":
            exchange.respond(200, [(b"content-type", b"text/plain")], WELCOME)
        else:
            fail(exchange, 404, "NOT_FOUND", "nothing is served here; streams live at /v1/stream/{name}")

    def _dispatch(self, exchange: Exchange, bucket: str, name: str) -> None:
        method = self._streams.methods.get(exchange.request.method)
        if method is None:
            allow = [(b"allow", ALLOWED_METHODS)]
            fail(exchange, 405, "METHOD_NOT_ALLOWED", "streams know GET, HEAD, PUT, POST and DELETE", allow)
        else:
            method(exchange, bucket, name)

    def _preflight(self, exchange: Exchange) -> None:
        exchange.respond(
            204,
            [
                (b"access-control-allow-methods", ALLOWED_METHODS),
                (b"access-control-allow-headers", ALLOWED_HEADERS),
                (b"access-control-max-age", b"86400"),
                (b"allow", ALLOWED_METHODS),
            ],
        )


REFUSALS: Final = {
    408: "REQUEST_TIMEOUT",
    413: "PAYLOAD_TOO_LARGE",
    414: "URI_TOO_LONG",
    417: "EXPECTATION_FAILED",
    431: "HEADERS_TOO_LARGE",
    501: "NOT_IMPLEMENTED",
}


def resolve_stream(path: str) -> tuple[str, str] | Malformed | StreamMissing:
    """The (bucket, name) that a decoded URL path addresses."""
    if not path.startswith(STREAM_ROOT):
        return Malformed(f"{path[:80]!r} is not the path of a stream on this server ({STREAM_ROOT}…)")
    name = check_stream_name(path[len(STREAM_ROOT) :])
    if isinstance(name, Malformed):
        return name
    if name.partition("/")[0] == RESERVED_PREFIX:
        return StreamMissing()
    return DEFAULT_BUCKET, name
