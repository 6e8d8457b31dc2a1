"""Finds the surface for a request, and stands between handlers and the connection when something fails."""

import logging
from typing import Final

import perennial
from perennial.http.access.gate import Gate
from perennial.http.access.identity import METRICS, BeyondScope
from perennial.http.admin import BACKUP_PATH, AdminSurface
from perennial.http.base import StreamSurface
from perennial.http.crowding import WaitingRoom
from perennial.http.errors import fail, reject
from perennial.http.exchange import FAILED, BodySink, Exchange, Lane, Request, is_plain_write
from perennial.http.front import REQUEST_ID, Front
from perennial.http.lanes import LONGEST_PATH, AppendAnswers
from perennial.http.live import LiveReads
from perennial.http.metrics import Metrics
from perennial.http.operations import OperationsSurface, Readiness
from perennial.http.paths import (
    BUCKET_ROOT,
    RAW_STREAM_ROOT,
    resolve_raw_stream,
    resolve_stream,
)
from perennial.http.proxy import ProxySurface, forwardable
from perennial.http.pulse import Pulse
from perennial.http.routes import BucketRoutes, Nowhere, publishes, refuse_method, serve_stream
from perennial.http.tracing import Tracing
from perennial.http.traffic import Traffic
from perennial.protocol.names import PROXY_BUCKET, decode_path
from perennial.protocol.rejections import Malformed, Rejected
from perennial.proxy.operations import Proxy
from perennial.service.streams import StreamService
from perennial.settings import Settings

log = logging.getLogger("perennial.http")

FEED_ROOT: Final = "/v1/feed/"
PROXY_ROOT: Final = "/v1/proxy"
ALLOWED_METHODS: Final = b"GET, HEAD, PUT, POST, PATCH, DELETE, OPTIONS"
ALLOWED_HEADERS: Final = (
    b"accept, content-type, authorization, if-none-match, x-request-id, traceparent, tracestate, "
    b"stream-seq, stream-ttl, stream-expires-at, "
    b"stream-closed, producer-id, producer-epoch, producer-seq, "
    b"stream-forked-from, stream-fork-offset, stream-fork-sub-offset, "
    b"upstream-url, upstream-method, upstream-authorization, use-stream-url, session-id, "
    b"stream-signed-url-ttl"
)
WELCOME: Final = (
    f"Perennial {perennial.__version__}, a Durable Streams server.\n"
    "Streams live at /v1/stream/{name}: PUT creates, POST appends, GET reads, HEAD looks, DELETE removes.\n"
).encode()


class Application:
    """The server as a function of exchanges; see `exchange.Handler`."""

    def __init__(
        self, service: StreamService, settings: Settings, proxy: Proxy, tracing: Tracing | None = None
    ) -> None:
        self._settings = settings
        self._gate = Gate(settings)
        self._traffic = Traffic()
        self._stream_tallies = self._traffic.by_method("stream")
        self._append_answers = AppendAnswers(self._stream_tallies["POST"])
        self._room = WaitingRoom()
        self._front = Front(settings, self._gate, self._room, tracing)
        self._live = LiveReads(
            service, self._room, settings.long_poll_timeout, settings.sse_max_age, settings.max_live_readers
        )
        self._streams = StreamSurface(
            service,
            self._live,
            max_chunk=settings.max_chunk,
            private=self._gate.guarded,
            resolve=resolve_stream,
            compression=settings.compression,
        )
        self._buckets = BucketRoutes(service, self._live, self._gate, self._streams)

        self._proxy = proxy
        self._proxy_surface = ProxySurface(
            proxy,
            self._gate,
            lambda: None if service.quotas is None else service.quotas.refuse(PROXY_BUCKET, 1, streams=1),
            StreamSurface(
                service,
                self._live,
                max_chunk=settings.max_chunk,
                private=True,
                resolve=resolve_stream,
                compression=settings.compression,
            ),
            url_ttl_seconds=settings.proxy_url_ttl,
            max_url_ttl_seconds=settings.proxy_max_url_ttl,
        )

        self._admin = AdminSurface(service)
        self._readiness = Readiness(service)
        self._pulse = Pulse()
        self.metrics = Metrics(
            service, self._traffic, self._live, self._pulse, self._front.rates, self._readiness.reasons
        )
        self._operations = OperationsSurface(self._readiness, self.metrics)
        self._pulse.start()

    def body_limit(self, request: Request) -> int:
        return self._settings.max_snapshot if publishes(request) else self._settings.max_body

    def body_sink(self, request: Request) -> BodySink | None:
        # Whoever is not known does not get to fill our memory.
        if self._gate.guarded and not self._gate.identify(request).known:
            return Nowhere()
        return self._buckets.open_upload(request) if publishes(request) else None

    def lane(self, request: Request) -> Lane | None:
        if self._gate.guarded or self._front.busy or REQUEST_ID in request.headers:
            return None
        path = request.path
        if request.method != "POST" or not path.startswith(RAW_STREAM_ROOT) or len(path) > LONGEST_PATH:
            return None
        address = resolve_raw_stream(path)
        if isinstance(address, Rejected) or not is_plain_write(request):
            return None
        return self._streams.lane(request, *address, self._append_answers)

    def handle(self, exchange: Exchange) -> None:
        if self._front.busy or REQUEST_ID in exchange.request.headers:
            exchange.request.tally = self._traffic.tally(exchange.request)
            self._front.receive(exchange, self._answer)
        else:
            self._answer(exchange)

    def reload(self, settings: Settings) -> None:
        """Take over other tokens and keys; everything else needs a restart. Raises `SettingsError`."""
        self._gate.reload(settings)

    def _answer(self, exchange: Exchange) -> None:
        try:
            self._route(exchange)
        except Exception:
            request = exchange.request
            log.exception("failed to answer %s %s", request.method, request.path.decode("latin-1"))
            if not exchange.closed:
                fail(exchange, 500, "INTERNAL_ERROR", FAILED)

    def refuse(self, exchange: Exchange, status: int, reason: str) -> None:
        exchange.request.tally = self._traffic.tally(exchange.request)
        if self._front.busy:
            exchange = self._front.observe(exchange)
        fail(exchange, status, REFUSALS.get(status, "BAD_REQUEST"), reason)

    def drain(self) -> None:
        self._readiness.draining = True
        self._pulse.stop()
        self._proxy.drain()
        self._live.drain()
        self._room.clear()

    def _route(self, exchange: Exchange) -> None:
        request = exchange.request
        if request.path.startswith(RAW_STREAM_ROOT):
            tally = self._stream_tallies.get(request.method)
            request.tally = self._traffic.tally(request) if tally is None else tally
            if request.method == "OPTIONS":
                self._preflight(exchange)
            elif not self._gate.guarded or self._gate.admit(exchange):
                address = resolve_raw_stream(request.path)
                if isinstance(address, Rejected):
                    reject(exchange, address)
                else:
                    serve_stream(exchange, self._streams, self._gate, *address)
            return
        path = decode_path(request.path)
        request.tally = self._traffic.tally(request)
        if request.method == "OPTIONS":
            self._preflight(exchange)
        elif isinstance(path, Malformed):
            reject(exchange, path)
        elif path in self._operations.pages:
            self._serve_operations(exchange, path)
        elif path == PROXY_ROOT or path.startswith(f"{PROXY_ROOT}/"):
            # Before the tokens: a pre-signed URL needs none.
            self._proxy_surface.handle(exchange, path[len(PROXY_ROOT) :])
        elif not self._gate.admit(exchange):
            return
        elif path.startswith(BUCKET_ROOT):
            self._buckets.serve(exchange)
        elif path.startswith(FEED_ROOT):
            self._buckets.serve_feed(exchange, path[len(FEED_ROOT) :])
        elif path == BACKUP_PATH:
            self._serve_backup(exchange)
        elif path == "/":
            exchange.respond(200, [(b"content-type", b"text/plain")], WELCOME)
        else:
            fail(exchange, 404, "NOT_FOUND", "nothing is served here; streams live at /v1/stream/{name}")

    def _serve_operations(self, exchange: Exchange, path: str) -> None:
        if exchange.request.method not in ("GET", "HEAD"):
            refuse_method(exchange, "GET, HEAD")
        elif path == "/metrics" and self._gate.guarded and not self._may_see_metrics(exchange):
            return
        else:
            self._operations.pages[path](exchange)

    def _serve_backup(self, exchange: Exchange) -> None:
        if exchange.request.method != "POST":
            refuse_method(exchange, "POST")
        elif not self._gate.identify(exchange.request).full:
            reject(exchange, BeyondScope())
        else:
            self._admin.backup(exchange)

    def _may_see_metrics(self, exchange: Exchange) -> bool:
        if not self._gate.admit(exchange):
            return False
        if self._gate.identify(exchange.request).has(METRICS):
            return True
        reject(exchange, BeyondScope())
        return False

    def _preflight(self, exchange: Exchange) -> None:
        headers = ALLOWED_HEADERS
        if exchange.request.path.startswith(PROXY_ROOT.encode()):
            # The proxy passes on whatever headers an upstream wants; the browser says which.
            headers += forwardable(exchange.request.headers.get(b"access-control-request-headers", ""))
        exchange.respond(
            204,
            [
                (b"access-control-allow-methods", ALLOWED_METHODS),
                (b"access-control-allow-headers", headers),
                (b"access-control-max-age", b"86400"),
                (b"allow", ALLOWED_METHODS),
            ],
        )


REFUSALS: Final = {
    500: "INTERNAL_ERROR",
    505: "HTTP_VERSION_NOT_SUPPORTED",
    408: "REQUEST_TIMEOUT",
    413: "PAYLOAD_TOO_LARGE",
    414: "URI_TOO_LONG",
    417: "EXPECTATION_FAILED",
    431: "HEADERS_TOO_LARGE",
    501: "NOT_IMPLEMENTED",
}
