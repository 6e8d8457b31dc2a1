"""Finds the surface for a request, and stands between handlers and the connection when something fails."""

import logging
from typing import Final

import perennial
from perennial.http.access import ServiceTokens, Verdict
from perennial.http.base import StreamSurface
from perennial.http.buckets import BucketSurface
from perennial.http.errors import fail, reject
from perennial.http.exchange import BodySink, Exchange, Request
from perennial.http.feed import FeedSurface
from perennial.http.live import LiveReads
from perennial.http.paths import (
    BUCKET_ROOT,
    RAW_STREAM_ROOT,
    BucketPath,
    parse_bucket_path,
    resolve_raw_stream,
    resolve_stream,
)
from perennial.http.proxy import ProxySurface
from perennial.http.snapshots import SnapshotSurface
from perennial.protocol.names import PROXY_BUCKET, check_bucket_id, decode_path
from perennial.protocol.rejections import BucketMissing, BuiltInBucket, Malformed, Rejected
from perennial.proxy.operations import Proxy
from perennial.service.streams import StreamService
from perennial.settings import Settings

log = logging.getLogger("perennial.http")

FEED_ROOT: Final = "/v1/feed/"
PROXY_ROOT: Final = "/v1/proxy"
ALLOWED_METHODS: Final = b"GET, HEAD, PUT, POST, PATCH, DELETE, OPTIONS"
ALLOWED_HEADERS: Final = (
    b"accept, content-type, authorization, if-none-match, stream-seq, stream-ttl, stream-expires-at, "
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

    def __init__(self, service: StreamService, settings: Settings, proxy: Proxy) -> None:
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
        self._buckets = BucketSurface(service)
        self._snapshots = SnapshotSurface(service)
        self._feed = FeedSurface(service, self._live)

        self._proxy = proxy
        self._proxy_surface = ProxySurface(
            proxy,
            self._tokens,
            StreamSurface(
                service, self._live, max_chunk=settings.max_chunk, private=True, resolve=resolve_stream
            ),
            url_ttl_seconds=settings.proxy_url_ttl,
            max_url_ttl_seconds=settings.proxy_max_url_ttl,
        )

    def body_limit(self, request: Request) -> int:
        return self._settings.max_snapshot if _publishes(request) else self._settings.max_body

    def body_sink(self, request: Request) -> BodySink | None:
        if not _publishes(request):
            return None
        path = parse_bucket_path(request.path)
        if isinstance(path, Rejected) or path.bucket == PROXY_BUCKET or path.snapshot is None:
            return Nowhere()
        if not self._tokens.judge(request).admits:
            return Nowhere()
        return self._snapshots.open_upload(request, path.bucket, path.stream, path.snapshot)

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
        self._proxy.drain()
        self._live.drain()

    def _route(self, exchange: Exchange) -> None:
        request = exchange.request
        if request.method == "OPTIONS":
            self._preflight(exchange)
            return
        if request.path.startswith(RAW_STREAM_ROOT):
            if self._tokens.admit(exchange):
                self._serve_base_path(exchange)
            return
        path = decode_path(request.path)
        if isinstance(path, Malformed):
            reject(exchange, path)
        elif path == "/healthz":
            exchange.respond(200, [(b"content-type", b"text/plain")], b"ok\n")
        elif path == PROXY_ROOT or path.startswith(f"{PROXY_ROOT}/"):
            # Before the tokens: a pre-signed URL needs none.
            self._proxy_surface.handle(exchange, path[len(PROXY_ROOT) :])
        elif not self._tokens.admit(exchange):
            return
        elif path.startswith(BUCKET_ROOT):
            self._serve_bucket_path(exchange)
        elif path.startswith(FEED_ROOT):
            self._serve_feed(exchange, path[len(FEED_ROOT) :])
        elif path == "/":
            exchange.respond(200, [(b"content-type", b"text/plain")], WELCOME)
        else:
            fail(exchange, 404, "NOT_FOUND", "nothing is served here; streams live at /v1/stream/{name}")

    def _serve_base_path(self, exchange: Exchange) -> None:
        address = resolve_raw_stream(exchange.request.path)
        if isinstance(address, tuple):
            self._serve_stream(exchange, *address)
        else:
            reject(exchange, address)

    def _serve_stream(self, exchange: Exchange, bucket: str, name: str) -> None:
        method = self._streams.methods.get(exchange.request.method)
        if method is None:
            refuse_method(exchange, "GET, HEAD, PUT, POST, DELETE")
        else:
            method(exchange, bucket, name)

    def _serve_bucket_path(self, exchange: Exchange) -> None:
        path = parse_bucket_path(exchange.request.path)
        if isinstance(path, Rejected):
            reject(exchange, path)
        elif path.bucket == PROXY_BUCKET and path.kind == "bucket" and exchange.request.method in ("PUT", "DELETE"):
            reject(exchange, BuiltInBucket())
        elif path.bucket == PROXY_BUCKET and not self._may_see_proxy(exchange.request):
            reject(exchange, BucketMissing())
        elif path.bucket == PROXY_BUCKET and not path.is_read_or_close(exchange.request):
            refuse_method(exchange, "GET, HEAD, POST")
        elif path.kind == "bucket":
            method = self._buckets.methods.get(exchange.request.method)
            if method is None:
                refuse_method(exchange, "GET, HEAD, PUT, DELETE")
            else:
                method(exchange, path.bucket)
        elif path.kind == "listing":
            self._serve_listing(exchange, path)
        elif path.kind == "stream":
            self._serve_stream(exchange, path.bucket, path.stream)
        else:
            self._serve_snapshot(exchange, path)

    def _serve_listing(self, exchange: Exchange, path: BucketPath) -> None:
        if exchange.request.method in ("GET", "HEAD"):
            self._buckets.list(exchange, path.bucket)
        elif exchange.request.method in ("PUT", "POST", "DELETE"):
            reject(exchange, Malformed("the stream id 'streams' is reserved for the bucket's listing"))
        else:
            refuse_method(exchange, "GET, HEAD")

    def _serve_snapshot(self, exchange: Exchange, path: BucketPath) -> None:
        method, reads = exchange.request.method, exchange.request.method in ("GET", "HEAD")
        surface, bucket, stream, token = self._snapshots, path.bucket, path.stream, path.snapshot
        if path.kind == "bootstrap":
            if method == "GET":
                surface.bootstrap(exchange, bucket, stream)
            else:
                refuse_method(exchange, "GET")
        elif token is None:
            if reads:
                surface.latest(exchange, bucket, stream)
            else:
                refuse_method(exchange, "GET, HEAD")
        elif reads:
            surface.get(exchange, bucket, stream, token)
        elif method == "PUT":
            surface.put(exchange, bucket, stream, token)
        elif method == "DELETE":
            surface.delete(exchange, bucket, stream, token)
        else:
            refuse_method(exchange, "GET, HEAD, PUT, DELETE")

    def _serve_feed(self, exchange: Exchange, name: str) -> None:
        bucket = check_bucket_id(name)
        if isinstance(bucket, Malformed):
            reject(exchange, bucket)
        elif bucket == PROXY_BUCKET and not self._may_see_proxy(exchange.request):
            reject(exchange, BucketMissing())
        elif exchange.request.method == "GET":
            self._feed.get(exchange, bucket)
        elif exchange.request.method == "HEAD":
            self._feed.head(exchange, bucket)
        else:
            refuse_method(exchange, "GET, HEAD")

    def _may_see_proxy(self, request: Request) -> bool:
        """Proxied responses are never open to all, not even on a server without tokens."""
        return self._tokens.judge(request) is Verdict.KNOWN

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
    500: "INTERNAL_ERROR",
    505: "HTTP_VERSION_NOT_SUPPORTED",
    408: "REQUEST_TIMEOUT",
    413: "PAYLOAD_TOO_LARGE",
    414: "URI_TOO_LONG",
    417: "EXPECTATION_FAILED",
    431: "HEADERS_TOO_LARGE",
    501: "NOT_IMPLEMENTED",
}


class Nowhere:
    """Takes in a body that will be refused, so that the client hears why."""

    def feed(self, data: bytes) -> None:
        pass

    def abandon(self) -> None:
        pass


def refuse_method(exchange: Exchange, allowed: str) -> None:
    headers = [(b"allow", allowed.encode())]
    fail(exchange, 405, "METHOD_NOT_ALLOWED", f"this address knows {allowed}", headers)


def _publishes(request: Request) -> bool:
    return request.method == "PUT" and request.path.startswith(b"/ds/") and b"/snapshot/" in request.path
