"""Routes below a bucket: the bucket itself, its listing, its streams and their parts, its feed."""

from perennial.http.access.gate import Gate, scope_of
from perennial.http.access.identity import ADMIN, READ, WRITE
from perennial.http.base import StreamSurface
from perennial.http.buckets import BucketSurface
from perennial.http.errors import fail, reject
from perennial.http.exchange import BodySink, Exchange, Request
from perennial.http.feed import FeedSurface
from perennial.http.live import LiveReads
from perennial.http.paths import BucketPath, parse_bucket_path
from perennial.http.query import parse_query
from perennial.http.snapshots import SnapshotSurface
from perennial.protocol.names import PROXY_BUCKET, check_bucket_id
from perennial.protocol.rejections import BucketMissing, BuiltInBucket, Malformed, Rejected
from perennial.service.streams import StreamService


class BucketRoutes:
    """Who asks is known by now; what they may do is judged here, before anything is looked up."""

    def __init__(self, service: StreamService, live: LiveReads, gate: Gate, streams: StreamSurface) -> None:
        self._gate = gate
        self._streams = streams
        self._buckets = BucketSurface(service)
        self._snapshots = SnapshotSurface(service)
        self._feed = FeedSurface(service, live)

    def open_upload(self, request: Request) -> BodySink:
        """Where the body of a request that `publishes` goes."""
        path = parse_bucket_path(request.path)
        if isinstance(path, Rejected) or path.bucket == PROXY_BUCKET or path.snapshot is None:
            return Nowhere()
        if not self._gate.identify(request).may(WRITE, path.bucket, path.stream):
            return Nowhere()
        return self._snapshots.open_upload(request, path.bucket, path.stream, path.snapshot)

    def serve(self, exchange: Exchange) -> None:
        path = parse_bucket_path(exchange.request.path)
        if isinstance(path, Rejected):
            reject(exchange, path)
        elif (
            path.bucket == PROXY_BUCKET
            and path.kind == "bucket"
            and exchange.request.method in ("PUT", "DELETE")
        ):
            reject(exchange, BuiltInBucket())
        elif path.bucket == PROXY_BUCKET and not self._may_see_proxy(exchange.request):
            reject(exchange, BucketMissing())
        elif path.bucket == PROXY_BUCKET and not path.is_read_or_close(exchange.request):
            refuse_method(exchange, "GET, HEAD, POST")
        elif path.kind == "bucket":
            method = self._buckets.methods.get(exchange.request.method)
            scope = READ if exchange.request.method in ("GET", "HEAD") else ADMIN
            if method is None:
                refuse_method(exchange, "GET, HEAD, PUT, DELETE")
            elif self._gate.allow_all(exchange, scope, path.bucket):
                method(exchange, path.bucket)
        elif path.kind == "listing":
            self._serve_listing(exchange, path)
        elif path.kind == "stream":
            serve_stream(exchange, self._streams, self._gate, path.bucket, path.stream)
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
        if not self._gate.allow(exchange, scope_of(exchange.request.method), path.bucket, path.stream):
            return
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

    def serve_feed(self, exchange: Exchange, name: str) -> None:
        bucket = check_bucket_id(name)
        if isinstance(bucket, Malformed):
            reject(exchange, bucket)
        elif bucket == PROXY_BUCKET and not self._may_see_proxy(exchange.request):
            reject(exchange, BucketMissing())
        elif not self._may_read_feed(exchange, bucket):
            return
        elif exchange.request.method == "GET":
            self._feed.get(exchange, bucket)
        elif exchange.request.method == "HEAD":
            self._feed.head(exchange, bucket)
        else:
            refuse_method(exchange, "GET, HEAD")

    def _may_read_feed(self, exchange: Exchange, bucket: str) -> bool:
        """All of it, or as much as the request's own filter leaves."""
        if not self._gate.guarded:
            return True
        query = parse_query(exchange.request.query, "stream", "prefix")
        wanted = {} if isinstance(query, Malformed) else query
        names = wanted.get("stream") or wanted.get("prefix", "")
        return self._gate.allow(exchange, READ, bucket, names)

    def _may_see_proxy(self, request: Request) -> bool:
        """Proxied responses are never open to all, not even on a server without tokens."""
        return self._gate.identify(request).known


class Nowhere:
    """Takes in a body that will be refused, so that the client hears why."""

    def feed(self, data: bytes) -> None:
        pass

    def abandon(self) -> None:
        pass


def serve_stream(exchange: Exchange, streams: StreamSurface, gate: Gate, bucket: str, name: str) -> None:
    method = streams.methods.get(exchange.request.method)
    if method is None:
        refuse_method(exchange, "GET, HEAD, PUT, POST, DELETE")
    elif not gate.guarded or gate.allow(exchange, scope_of(exchange.request.method), bucket, name):
        method(exchange, bucket, name)


def refuse_method(exchange: Exchange, allowed: str) -> None:
    allowed += ", OPTIONS"  # which every address answers
    headers = [(b"allow", allowed.encode())]
    fail(exchange, 405, "METHOD_NOT_ALLOWED", f"this address knows {allowed}", headers)


def publishes(request: Request) -> bool:
    """Is this the upload of a snapshot, which may be larger than memory?"""
    return request.method == "PUT" and request.path.startswith(b"/ds/") and b"/snapshot/" in request.path
