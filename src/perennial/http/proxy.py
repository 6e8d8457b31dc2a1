"""The proxy surface, `/v1/proxy` and `/v1/proxy/{stream-id}` (proxy protocol, 4)."""

import asyncio
import logging
import re
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import msgspec

from perennial.http.access.gate import CHALLENGE, Gate
from perennial.http.access.identity import MISSING, READ, WRITE
from perennial.http.base import StreamSurface
from perennial.http.errors import JSON_TYPE, NO_STORE
from perennial.http.exchange import CORS_HEADERS, FAILED, Body, Exchange, Headers, Request, is_plain_write
from perennial.http.paths import own_url
from perennial.http.query import parse_query
from perennial.protocol import forwarding as f
from perennial.protocol.headers import parse_count
from perennial.protocol.names import PROXY_BUCKET
from perennial.protocol.rejections import Malformed, Rejected
from perennial.proxy import errors as e
from perennial.proxy.operations import Forward, Opened, Proxy, is_session_stream, session_stream_id
from perennial.proxy.signing import Signed, Verdict, parse_signed_url

log = logging.getLogger("perennial.http")

HEADER_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,100}")
Result = TypeVar("Result")
Work = Callable[[], Awaitable[Result]]

# What the operations may raise, and how it is told. Upstream refusals carry more: see `_refused`.
STATUS: Final[dict[type[e.ProxyError], tuple[int, str]]] = {
    e.UpstreamNotAllowed: (403, "UPSTREAM_NOT_ALLOWED"),
    e.Redirected: (400, "REDIRECT_NOT_ALLOWED"),
    e.UpstreamRefused: (502, "UPSTREAM_ERROR"),
    e.UpstreamUnreachable: (502, "UPSTREAM_ERROR"),
    e.UpstreamTimeout: (504, "UPSTREAM_TIMEOUT"),
    e.ConnectRejected: (401, "CONNECT_REJECTED"),
    e.TooManyUpstreams: (429, "TOO_MANY_UPSTREAMS"),
    e.StorageFailed: (502, "STORAGE_ERROR"),
    e.NoSuchStream: (404, "STREAM_NOT_FOUND"),
    e.StreamIsClosed: (409, "STREAM_CLOSED"),
    e.Stopping: (503, "STOPPING"),
}


class Refused(Exception):
    """The request is not even tried: status, code, message, and more fields of the error."""

    def __init__(self, status: int, code: str, message: str, **fields: object) -> None:
        super().__init__(code)
        self.status = status
        self.body = {"error": {"code": code, "message": message, **fields}}


class ProxySurface:
    def __init__(
        self,
        proxy: Proxy,
        gate: Gate,
        room: Callable[[], Rejected | None],
        streams: StreamSurface,
        *,
        url_ttl_seconds: int,
        max_url_ttl_seconds: int,
    ) -> None:
        self._proxy = proxy
        self._gate = gate
        self._room = room  # why nothing more may be stored, if so
        self._streams = streams
        self._url_ttl = min(url_ttl_seconds, max_url_ttl_seconds)
        self._max_url_ttl = max_url_ttl_seconds
        self._tasks: set[asyncio.Task[None]] = set()
        self._methods = {"GET": self._read, "HEAD": self._look, "PATCH": self._abort, "DELETE": self._delete}

    def handle(self, exchange: Exchange, rest: str) -> None:
        """`rest` is the path behind `/v1/proxy`: nothing, or a slash and a stream id."""
        stream_id = rest[1:]
        try:
            if not rest:
                self._post(exchange)
            elif not stream_id or "/" in stream_id:
                raise Refused(404, "NOT_FOUND", "the proxy serves /v1/proxy and /v1/proxy/{stream-id}")
            else:
                method = self._methods.get(exchange.request.method)
                if method is None:
                    _wrong_method(exchange, b"GET, HEAD, PATCH, DELETE, OPTIONS")
                else:
                    method(exchange, stream_id)
        except Refused as refused:
            _refuse(exchange, refused)
        except e.ProxyError as error:
            _explain(exchange, error)
        except Exception as error:
            _break_down(exchange, error)

    # POST: append, connect or create, in this order (4.1)

    def _post(self, exchange: Exchange) -> None:
        request = exchange.request
        if request.method != "POST":
            _wrong_method(exchange, b"POST, OPTIONS")
            return
        self._require_service(request, WRITE)
        full = self._room()
        if full is not None:
            raise Refused(507, "QUOTA_EXCEEDED", full.message)
        if f.USE_STREAM_URL in request.headers:
            self._append(exchange)
        elif f.SESSION_ID in request.headers:
            self._connect(exchange)
        else:
            forward, ttl = self._forward(request), self._ttl(request)
            opening = partial(self._proxy.create, forward)
            self._spawn(exchange, partial(self._answer_opened, exchange, 201, opening, ttl))

    def _append(self, exchange: Exchange) -> None:
        request = exchange.request
        claim = parse_signed_url(request.headers[f.USE_STREAM_URL])
        if claim is None:
            raise Refused(400, "MALFORMED_STREAM_URL", "Use-Stream-URL is not a pre-signed stream URL")
        # Expired will do: whether the write may happen is for the upstream to say (8.5).
        if self._proxy.signer.judge(claim, time.time()) is Verdict.INVALID:
            raise _invalid_signature()
        self._proxy.check_appendable(claim.stream_id)
        forward, ttl = self._forward(request), self._ttl(request)
        opening = partial(self._proxy.append, claim.stream_id, forward)
        self._spawn(exchange, partial(self._answer_opened, exchange, 200, opening, ttl))

    def _connect(self, exchange: Exchange) -> None:
        request = exchange.request
        session_id = request.headers[f.SESSION_ID]
        if not session_id:
            raise Refused(400, "BAD_REQUEST", "Session-Id must not be empty")
        stream_id = session_stream_id(session_id)
        auth = None
        if f.UPSTREAM_URL in request.headers:
            url = self._proxy.allowlist.admit(request.headers[f.UPSTREAM_URL])
            headers = f.upstream_request_headers(request.headers, stream_id)
            auth = Forward("POST", url, headers, request.body, self._caller(request))
        ttl = self._ttl(request)
        self._spawn(exchange, partial(self._answer_connected, exchange, stream_id, auth, ttl))

    def _forward(self, request: Request) -> Forward:
        get = request.headers.get
        url, method = get(f.UPSTREAM_URL), get(f.UPSTREAM_METHOD)
        if not url:
            raise Refused(400, "MISSING_UPSTREAM_URL", "the Upstream-URL header is required")
        if not method:
            raise Refused(400, "MISSING_UPSTREAM_METHOD", "the Upstream-Method header is required")
        if method not in f.METHODS:
            raise Refused(
                400, "INVALID_UPSTREAM_METHOD", "Upstream-Method must be GET, POST, PUT, PATCH or DELETE"
            )
        return Forward(
            method,
            self._proxy.allowlist.admit(url),
            f.upstream_request_headers(request.headers),
            request.body,
            self._caller(request),
        )

    def _ttl(self, request: Request) -> int:
        text = request.headers.get(f.STREAM_SIGNED_URL_TTL)
        if text is None:
            return self._url_ttl
        ttl = parse_count("Stream-Signed-URL-TTL", text)
        if isinstance(ttl, Malformed):
            raise Refused(400, "BAD_REQUEST", ttl.reason)
        return min(ttl, self._max_url_ttl)

    async def _answer_opened(self, exchange: Exchange, status: int, opening: Work[Opened], ttl: int) -> None:
        opened = await opening()
        headers = [
            self._location(exchange.request, opened.stream_id, ttl),
            (f.STREAM_RESPONSE_ID, b"%d" % opened.response_id),
        ]
        if opened.content_type is not None:
            headers.append((f.UPSTREAM_CONTENT_TYPE, opened.content_type.encode("latin-1")))
        _respond(exchange, status, headers)

    async def _answer_connected(
        self, exchange: Exchange, stream_id: str, auth: Forward | None, ttl: int
    ) -> None:
        created = await self._proxy.connect(stream_id, auth)
        location = self._location(exchange.request, stream_id, ttl)
        _respond(exchange, 201 if created else 200, [location])

    def _location(self, request: Request, stream_id: str, ttl: int) -> tuple[bytes, bytes]:
        signed = self._proxy.signer.sign(stream_id, ttl, time.time())
        return b"location", b"%b/%b?%b" % (own_url(request), stream_id.encode(), signed.query.encode())

    # One stream

    def _read(self, exchange: Exchange, stream_id: str) -> None:
        request = exchange.request
        # A token has to be shown: that a server is open to whoever connects does not open its streams,
        # each of which belongs to whoever holds its URL.
        identity = self._gate.identify(request)
        if not (identity.known and identity.may(READ, PROXY_BUCKET, stream_id)):
            self._require_signature(request, stream_id)
        self._streams.get(exchange, PROXY_BUCKET, stream_id)

    def _look(self, exchange: Exchange, stream_id: str) -> None:
        self._require_service(exchange.request, READ, stream_id)
        self._streams.head(exchange, PROXY_BUCKET, stream_id)

    def _abort(self, exchange: Exchange, stream_id: str) -> None:
        request = exchange.request
        self._require_signature(request, stream_id)
        query = parse_query(request.query, "action")
        if isinstance(query, Malformed) or query.get("action") != "abort":
            raise Refused(400, "INVALID_ACTION", "the only action is abort: PATCH …&action=abort")
        self._streams_or_404(stream_id)
        self._spawn(exchange, partial(self._answer_empty, exchange, partial(self._proxy.abort, stream_id)))

    def _delete(self, exchange: Exchange, stream_id: str) -> None:
        self._require_service(exchange.request, WRITE, stream_id)
        self._spawn(exchange, partial(self._answer_empty, exchange, partial(self._proxy.delete, stream_id)))

    async def _answer_empty(self, exchange: Exchange, operation: Work[None]) -> None:
        await operation()
        _respond(exchange, 204, [])

    def _streams_or_404(self, stream_id: str) -> None:
        with suppress(e.StreamIsClosed):  # nothing can be in flight there, which is what the caller wants
            self._proxy.check_appendable(stream_id)

    # Who may

    def _require_service(self, request: Request, scope: str, stream_id: str = "") -> None:
        if not self._gate.guarded:
            return
        identity = self._gate.identify(request)
        if identity is MISSING:
            raise Refused(401, "MISSING_SECRET", "send a service token: Authorization: Bearer <token>")
        if not identity.known:
            raise Refused(401, "INVALID_SECRET", "this service token is not known here")
        if not identity.may(scope, PROXY_BUCKET, stream_id):
            raise Refused(403, "FORBIDDEN", "your token does not give this access here")

    def _require_signature(self, request: Request, stream_id: str) -> None:
        query = parse_query(request.query, "expires", "signature")
        if isinstance(query, Malformed):
            raise Refused(400, "BAD_REQUEST", query.reason)
        if not query.get("expires") or not query.get("signature"):
            raise Refused(401, "MISSING_SIGNATURE", "use the pre-signed URL that the proxy gave as Location")
        claim = Signed(stream_id, query["expires"], query["signature"])
        verdict = self._proxy.signer.judge(claim, time.time())
        if verdict is Verdict.INVALID:
            raise _invalid_signature()
        if verdict is Verdict.EXPIRED:
            renewable = is_session_stream(stream_id)
            raise Refused(
                401,
                "SIGNATURE_EXPIRED",
                "Pre-signed URL has expired",
                renewable=renewable,
                streamId=stream_id,
            )

    def _caller(self, request: Request) -> str:
        """A name to count by; a token itself is not kept around."""
        identity = self._gate.identify(request)
        return identity.name if identity.known else request.client

    # Work that takes a while

    def _spawn(self, exchange: Exchange, work: Work[None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(exchange, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A client that goes away while the upstream is being asked does not want the answer any more.
        exchange.on_closed = task.cancel  # type: ignore[assignment]

    async def _guarded(self, exchange: Exchange, work: Work[None]) -> None:
        try:
            await work()
        except e.ProxyError as error:
            _explain(exchange, error)
        except Exception as error:
            # Not the whole of it: a traceback's texts may quote credentials of the request.
            where = error.__traceback__
            while where is not None and where.tb_next is not None:
                where = where.tb_next
            place = "" if where is None else f"{where.tb_frame.f_code.co_qualname}:{where.tb_lineno}"
            log.error("the proxy failed with %s in %s", type(error).__name__, place)
            _fail(exchange, 500, "INTERNAL_ERROR", FAILED)


def forwardable(asked: str) -> bytes:
    """The headers a browser asks to send, to be added to a list of allowed ones."""
    names = (name.strip().lower() for name in asked.split(",")[:100])
    return b"".join(b", " + name.encode() for name in names if HEADER_NAME.fullmatch(name))


def _invalid_signature() -> Refused:
    return Refused(401, "SIGNATURE_INVALID", "the signature does not belong to this stream and expiry")


def _break_down(exchange: Exchange, error: Exception) -> None:
    """An error of our own. Where it happened is logged, and not its text, which may quote credentials."""
    frames = traceback.extract_tb(error.__traceback__)
    place = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
    log.error("the proxy failed with %s in %s", type(error).__name__, place)
    if not exchange.closed:
        _fail(exchange, 500, "INTERNAL_ERROR", FAILED)


def _refuse(exchange: Exchange, refused: Refused) -> None:
    challenge = CHALLENGE if refused.status == 401 else []
    _respond(exchange, refused.status, [*challenge, *JSON_TYPE], msgspec.json.encode(refused.body))


def _explain(exchange: Exchange, error: e.ProxyError) -> None:
    status, code = STATUS[type(error)]
    if isinstance(error, e.Redirected):
        _fail(exchange, status, code, "Proxy cannot follow redirects")
    elif isinstance(error, e.UpstreamRefused):
        _pass_on(exchange, status, error)
    else:
        retry: Headers = [(b"retry-after", b"1")] if status in (429, 503) else []
        _fail(exchange, status, code, str(error), retry)


def _pass_on(exchange: Exchange, status: int, refused: e.UpstreamRefused) -> None:
    """The upstream's own words, as it sent them (4.2)."""
    headers: Headers = [(f.UPSTREAM_STATUS, b"%d" % refused.status)]
    for name in ("content-type", "content-encoding"):
        if name in refused.headers:
            headers.append((name.encode(), refused.headers[name].encode("latin-1")))
    _respond(exchange, status, headers, refused.body)


def _wrong_method(exchange: Exchange, allowed: bytes) -> None:
    message = f"allowed here: {allowed.decode()}"
    _fail(exchange, 405, "METHOD_NOT_ALLOWED", message, [(b"allow", allowed)])


def _fail(exchange: Exchange, status: int, code: str, message: str, headers: Headers | None = None) -> None:
    body = msgspec.json.encode({"error": {"code": code, "message": message}})
    _respond(exchange, status, [*(headers or []), *JSON_TYPE], body)


def _respond(exchange: Exchange, status: int, headers: Headers, body: Body = b"") -> None:
    # Here the headers for browsers go with every answer (11.2): also to a write that says no Origin.
    cors = CORS_HEADERS if is_plain_write(exchange.request) else []
    exchange.respond(status, [*headers, *NO_STORE, *cors], body)
