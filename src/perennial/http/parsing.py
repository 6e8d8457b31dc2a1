"""Bytes in, requests out: HTTP/1.1 requests with their limits, and nothing of sockets or answers.

httptools (llhttp in its strict mode) knows the grammar and refuses ambiguous framing: Content-Length next
to Transfer-Encoding, repeated lengths, bare line feeds, folded headers, control characters. This module adds
what llhttp leaves open: sizes, Host, targets, expectations, upgrades, and where a body goes.
"""

import logging
from typing import Final, NoReturn, Protocol

import httptools

from perennial.http.exchange import Handler, Request, join_repeated
from perennial.http.heads import END, END_BYTES, REMEMBERED_BYTES, Head, KnownHeads
from perennial.http.limits import Limits

IDLE: Final = 0  # between requests
HEAD: Final = 1  # a request line or headers have begun
BODY: Final = 2  # headers are complete, the body is not
DONE: Final = 3  # no further request will be read from this connection

# llhttp cannot be stopped in the middle of a buffer, so buffers are cut to this size: a peer that sends
# requests ahead makes us hold the requests of one piece, not of a whole read.
PIECE_BYTES: Final = 16 * 1024

_METHODS = {
    method.encode(): method
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE")
}
_SLASH = ord("/")

log = logging.getLogger(__name__)


class Clock(Protocol):
    now: float


class ParsedRequest(Request, eq=False):
    """A request and what its connection must remember about it."""

    keep_alive: bool = True
    old: bool = False  # HTTP/1.0: no chunked answers, closes unless it asked to stay
    refusal: tuple[int, str] | None = None  # to be answered by Handler.refuse


def abandon_body(request: Request) -> None:
    """Nobody will handle this request: let its sink forget what it was fed."""
    if request.sink is not None:
        sink, request.sink = request.sink, None
        try:
            sink.abandon()
        except Exception:
            log.exception("abandoning a body failed")


class _Stopped(Exception):
    pass


class RequestReader:
    """Reads the requests of one connection; complete ones appear in `ready`, in order.

    A request that must be refused appears there too, with its `refusal`, and is the last one.
    """

    __slots__ = (
        "_body",
        "_body_bytes",
        "_body_limit",
        "_client",
        "_clock",
        "_current",
        "_handler",
        "_head_bytes",
        "_headers",
        "_known",
        "_limits",
        "_parser",
        "_repeated",
        "_scheme",
        "_silent_bytes",
        "_target",
        "_upgrading",
        "phase",
        "ready",
        "since",
        "wants_continue",
    )

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        clock: Clock,
        known: KnownHeads,
        client: str,
        secure: bool = False,
    ) -> None:
        self._handler = handler
        self._known = known
        self._scheme = "https" if secure else "http"
        self._limits = limits
        self._clock = clock
        self._client = client
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)

        self.ready: list[ParsedRequest] = []
        self.phase: int = IDLE
        self.since = clock.now  # when the phase began, or the body last grew
        self.wants_continue = False  # the peer holds its body back until it is told to go on

        # Of the request being read.
        self._target = b""
        self._headers: dict[bytes, str] = {}
        self._repeated = 0
        self._head_bytes = 0  # in buffers before the present one
        self._current: ParsedRequest | None = None
        self._body: bytes | bytearray = b""
        self._body_bytes = 0
        self._body_limit = 0
        self._silent_bytes = 0  # since the body last grew: chunk headers and trailers
        self._upgrading = False

    # Input

    def recall(self, data: bytes) -> Head | None:
        """The head, if `data` is exactly one request whose head is known. If not, it is to be fed."""
        if self.phase != IDLE:
            return None
        end = data.find(END, 0, REMEMBERED_BYTES) + END_BYTES
        head = self._known.get(data[:end])
        return head if head is not None and head.length == len(data) - end else None

    def repeat(self, head: Head, body: bytes) -> ParsedRequest:
        """A request with a head that was recalled."""
        return ParsedRequest(
            head.method, head.path, head.query, head.headers, body, self._scheme, self._client
        )

    def feed(self, data: bytes | memoryview) -> None:
        """Take a piece of at most PIECE_BYTES. Never raises: what is wrong with it becomes a refusal."""
        parser = self._parser
        if parser is None:
            return
        ready = len(self.ready)
        body_bytes = self._body_bytes
        idle = self.phase == IDLE
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(memoryview(data)[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._fail(error)
        if len(self.ready) == ready:
            self._count_unfinished(len(data), self._body_bytes > body_bytes)
        elif idle and self.phase == IDLE and len(self.ready) == ready + 1 and type(data) is bytes:
            request = self.ready[-1]
            if not request.old:
                self._known.notice(data, request)

    def refuse(self, status: int, reason: str) -> None:
        """Give the request being read up, and with it all that would follow."""
        request = self._current
        if request is None:
            request = ParsedRequest("", b"", b"", self._headers, b"", self._scheme, self._client)
        request.keep_alive = False
        request.refusal = (status, reason)
        self._finish()
        self.ready.append(request)

    def close(self) -> None:
        """Nothing more will be handled, read or not: bodies in their sinks are abandoned."""
        self._finish()
        for request in self.ready:
            abandon_body(request)
        self.ready.clear()

    def _finish(self) -> None:
        self.phase = DONE
        self._parser = None  # which refers back to us
        self.wants_continue = False
        request, self._current = self._current, None
        self._body = b""
        if request is not None:
            abandon_body(request)

    # What llhttp calls

    def on_message_begin(self) -> None:
        if self.phase == IDLE:
            self.phase = HEAD
            self.since = self._clock.now

    def on_url(self, part: bytes) -> None:
        if self.phase == BODY:
            return  # _ignore_upgrade speaking
        if self._target:
            part = self._target + part
        self._target = part
        if len(part) > self._limits.target_bytes:
            self._stop(414, "request target too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self._headers
        name = name.lower()
        text = value.rstrip(b" \t").decode("latin-1")
        if name in headers:
            text = self._join_repeated(name, text)
        headers[name] = text

    def on_headers_complete(self) -> None:
        if self.phase == BODY:
            return  # _ignore_upgrade speaking
        parser = self._parser
        assert parser is not None  # it is calling us
        headers = self._headers
        target = self._target
        method = parser.get_method()
        path, _, query = target.partition(b"?")
        self._current = request = ParsedRequest(
            _METHODS.get(method) or method.decode(), path, query, headers, b"", self._scheme, self._client
        )
        request.keep_alive = keep_alive = parser.should_keep_alive()
        # Without a Connection header only HTTP/1.1 is kept alive, which spares the question of the version.
        # llhttp takes Proxy-Connection for one too.
        if not keep_alive or b"connection" in headers or b"proxy-connection" in headers:
            self._check_version(request)
        if b"host" not in headers and not request.old:
            self._stop(400, "missing Host header")
        if target[0] != _SLASH or b"#" in target:
            self._resolve_target(request, target)
        if self._head_bytes or self._repeated or len(headers) > self._limits.header_count:
            self._check_size(headers)
        if b"content-length" in headers:
            length = int(headers[b"content-length"])  # llhttp lets digits pass, and nothing else
            if length:
                self._expect_body(request, length)
        elif b"transfer-encoding" in headers:
            self._expect_body(request, None)
        if b"expect" in headers:
            self._check_expectation(request)
        if b"upgrade" in headers or method == b"CONNECT":
            self._check_upgrade(request)

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > self._body_limit:
            self._stop(413, f"the body is larger than {self._body_limit} bytes")
        self.since = self._clock.now
        self.wants_continue = False
        request = self._current
        assert request is not None  # on_headers_complete set it
        if request.sink is not None:
            request.sink.feed(data)
        elif not self._body:
            self._body = data
        else:
            # One growing buffer and not a list: a body in tiny chunks would cost many times its size.
            if type(self._body) is bytes:
                self._body = bytearray(self._body)
            self._body += data

    def on_message_complete(self) -> None:
        request = self._current
        assert request is not None  # on_headers_complete set it
        if self.phase == BODY:
            if self._upgrading:
                return  # llhttp left the body to us: see _ignore_upgrade
            request.body = bytes(self._body)
            self._body = b""
            self._body_bytes = 0
            self.wants_continue = False
        self.ready.append(request)
        self.phase = IDLE if request.keep_alive else DONE
        self._current = None
        self._target = b""
        self._headers = {}
        self._repeated = 0
        self._head_bytes = 0

    # Steps

    def _join_repeated(self, name: bytes, text: str) -> str:
        if name == b"host":
            self._stop(400, "more than one Host header")
        self._repeated += 1
        if self._repeated > self._limits.header_count:
            self._stop(431, "too many headers")
        return join_repeated(name, self._headers[name], text)

    def _count_unfinished(self, size: int, body_grew: bool) -> None:
        """A piece has ended inside a request. llhttp would let all but the body grow without end."""
        limits = self._limits
        if self.phase == BODY:
            # Progress is judged by the body itself, or chunk extensions could drip in for ever.
            self._silent_bytes = 0 if body_grew else self._silent_bytes + size
            if self._silent_bytes > limits.header_bytes:
                self.refuse(400, "too much chunk framing or too many trailers")
        elif self.phase != DONE:
            if self.phase == IDLE:  # blank lines
                self.phase = HEAD
                self.since = self._clock.now
            self._head_bytes += size
            if self._head_bytes > limits.header_bytes + limits.target_bytes:
                self.refuse(431, "header section too large")

    def _check_version(self, request: ParsedRequest) -> None:
        assert self._parser is not None  # it is calling us
        version = self._parser.get_http_version()
        if version == "1.0":
            request.old = True
            # Chunked framing is not in HTTP/1.0: a peer in between may have framed this another way.
            if b"transfer-encoding" in request.headers:
                self._stop(400, "Transfer-Encoding in an HTTP/1.0 request")
        elif version != "1.1":
            self._stop(505, "only HTTP/1.1 and HTTP/1.0 are served here")

    def _check_size(self, headers: dict[bytes, str]) -> None:
        """Of a head with repeated headers, or one that came in several pieces: another is small enough."""
        if len(headers) + self._repeated > self._limits.header_count:
            self._stop(431, "too many headers")
        if sum(len(name) + len(value) + 4 for name, value in headers.items()) > self._limits.header_bytes:
            self._stop(431, "header section too large")

    def _resolve_target(self, request: ParsedRequest, target: bytes) -> None:
        """Targets that are no path: `*`, an absolute URL, or the authority of CONNECT (RFC 9112, 3.2)."""
        if b"#" in target:
            self._stop(400, "fragment in the request target")
        if request.method == "CONNECT":
            return  # refused with the upgrades
        if target == b"*":
            if request.method != "OPTIONS":
                self._stop(400, "the target * is for OPTIONS only")
            return
        scheme, separator, rest = target.partition(b"://")
        if not separator or scheme.lower() not in (b"http", b"https"):
            self._stop(400, "malformed request target")
        location, _, request.query = rest.partition(b"?")
        authority, slash, path = location.partition(b"/")
        if not authority:
            self._stop(400, "malformed request target")
        request.path = slash + path if slash else b"/"
        # RFC 9112, 3.2.2: the target's authority counts, whatever Host says.
        self._headers[b"host"] = authority.rpartition(b"@")[2].decode("latin-1")

    def _expect_body(self, request: ParsedRequest, length: int | None) -> None:
        if length is None and request.headers[b"transfer-encoding"].lower() != "chunked":
            self._stop(501, "the only transfer coding understood here is chunked")
        handler = self._handler
        self._body_limit = handler.body_limit(request)
        if length is not None and length > self._body_limit:
            self._stop(413, f"the body is larger than {self._body_limit} bytes")
        request.sink = handler.body_sink(request)
        self._headers = {}  # trailers go here, and nowhere else
        self._silent_bytes = 0
        self.phase = BODY
        self.since = self._clock.now

    def _check_expectation(self, request: ParsedRequest) -> None:
        if request.headers[b"expect"].lower() != "100-continue":
            self._stop(417, "the only expectation understood here is 100-continue")
        # HTTP/1.0 knows no interim answers (RFC 9110, 10.1.1).
        self.wants_continue = self.phase == BODY and not request.old

    def _check_upgrade(self, request: ParsedRequest) -> None:
        assert self._parser is not None  # it is calling us
        if request.method == "CONNECT":
            self._stop(501, "no tunnels here")
        self._upgrading = self._parser.should_upgrade()

    def _ignore_upgrade(self, rest: memoryview) -> None:
        """Go on in HTTP/1.1. Some clients offer HTTP/2 with every request, bodies included.

        llhttp takes all that follows the head for the new protocol. If there is a body, a fresh parser is
        told of it by a head that offers no upgrade.
        """
        while True:
            self._upgrading = False
            request = self._current
            if self.phase == BODY and request is not None:
                self._parser = httptools.HttpRequestParser(self)
                framing = b"transfer-encoding: chunked"
                if b"content-length" in request.headers:
                    framing = b"content-length: " + request.headers[b"content-length"].encode()
                self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % framing)
            assert self._parser is not None  # an upgrade is never noticed after a refusal
            try:
                self._parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
            except httptools.HttpParserError as error:
                self._fail(error)
                return

    def _stop(self, status: int, reason: str) -> NoReturn:
        self.refuse(status, reason)
        raise _Stopped

    def _fail(self, error: httptools.HttpParserError) -> None:
        if self.phase == DONE:
            return  # refused by a callback, or these are bytes after `Connection: close`
        if isinstance(error, httptools.HttpParserCallbackError):
            # A failing sink or limit of the application. Its own words are for the log only.
            log.error("reading a request failed", exc_info=error.__context__ or error)
            self.refuse(500, "internal error")
        elif isinstance(error, httptools.HttpParserInvalidMethodError):
            self.refuse(501, "unknown method")
        else:
            self.refuse(400, f"malformed request: {error}")
