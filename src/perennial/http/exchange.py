"""A request and the way to answer it: all that a surface sees of HTTP.

The native connection and the ASGI adapter both implement `Exchange`, so every surface is written once.
Handlers are plain functions: an answer may come at once or later, from a commit, a timer or a task.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from perennial.http.access.identity import Identity

# What a client hears of a mistake of ours.
FAILED: Final = "the server failed to answer; its log says why"

Headers = list[tuple[bytes, bytes]]
Body = bytes | Sequence[bytes | memoryview]


class Request(msgspec.Struct, eq=False):
    """One parsed request. Header names are lower case; repeated headers are joined, see `join_repeated`."""

    method: str
    path: bytes  # as sent: percent-encoded, without the query
    query: bytes
    headers: Mapping[bytes, str]
    body: bytes = b""
    scheme: str = "http"
    client: str = ""
    # Where the application is mounted in another one, percent-encoded.
    root: bytes = b""
    sink: "BodySink | None" = None
    # Who sent it, once someone has asked; see `access.gate`.
    identity: Identity | None = None
    # Where the answer is counted, by its status; the application's choice.
    tally: dict[int, int] | None = None


def join_repeated(name: bytes, first: str, second: str) -> str:
    """One value for two headers of a name (RFC 9110, 5.2). Cookies have their own way (RFC 6265, 5.4): over
    HTTP/2 each may come as a header of its own."""
    return f"{first}; {second}" if name == b"cookie" else f"{first}, {second}"


class BodySink(Protocol):
    """Takes a body too large to hold, piece by piece, instead of `Request.body`."""

    def feed(self, data: bytes) -> None: ...

    def abandon(self) -> None:
        """The rest of the body will never come; forget what was fed."""


class SharedChunk:
    """A piece of body that goes to many readers: what a connection makes of it, it makes once."""

    __slots__ = ("data", "framed")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.framed: bytes | None = None  # the native connection's chunk framing, after the first send


class Exchange(ABC):
    """One request and its one answer: either `respond`, or `begin`, any number of `send`, and `end`."""

    __slots__ = ("on_closed", "on_writable", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        # Both are let go of when the answer has ended: whoever set them most likely holds this exchange, and
        # a circle of the two would keep the request, with its body, until the garbage collector comes by.
        # Called once if the peer goes away (or the server must drop it) before the answer has ended.
        self.on_closed: Callable[[], None] | None = None
        # Called when `writable` turns true again after it was false.
        self.on_writable: Callable[[], None] | None = None

    @abstractmethod
    def respond(self, status: int, headers: Headers, body: Body = b"") -> None:
        """The whole answer. Content-Length, Date and the headers common to all answers are added."""

    @abstractmethod
    def begin(self, status: int, headers: Headers) -> None:
        """Start an answer whose length is not known yet."""

    @abstractmethod
    def send(self, data: bytes) -> None:
        """A piece of the body: written as one piece, in order; a no-op once the peer has gone."""

    def send_shared(self, chunk: SharedChunk) -> None:
        """As `send`, for a piece that other exchanges send too."""
        self.send(chunk.data)

    @abstractmethod
    def end(self) -> None: ...

    @abstractmethod
    def abort(self) -> None:
        """Break the answer off so that the peer notices: the one honest ending after a late failure."""

    @property
    @abstractmethod
    def writable(self) -> bool:
        """False while the peer reads slower than we write; a polite sender waits for `on_writable`."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """The answer has ended or the peer has gone."""


class Waiting(Protocol):
    """A connection that waits for an answer, as lanes see it."""

    def acknowledge(self, headers: bytes) -> bool:
        """Answer 204 to a plain write, with these encoded headers; False if the peer has gone."""

    def make_exchange(self) -> Exchange | None:
        """To answer anything else; None if the peer has gone."""


class Lane(ABC):
    """The short way of requests with a head that comes again and again: what can be known of them from the
    head alone is known, and only their bodies differ.
    """

    __slots__ = ()

    @abstractmethod
    def enter(self, line: Waiting, body: bytes) -> None:
        """As `Handler.handle`, for a request with this body: answer it on the line, now or later."""


class Handler(Protocol):
    """What a connection needs of the application."""

    def body_limit(self, request: Request) -> int:
        """The largest body this request may have; asked when its headers are complete."""

    def body_sink(self, request: Request) -> BodySink | None:
        """Where the body goes instead of memory; None: into `request.body`."""

    def handle(self, exchange: Exchange) -> None:
        """Answer, now or later. Never raises."""

    def lane(self, request: Request) -> Lane | None:
        """A short way for all requests with this one's head; None: each goes through `handle`."""

    def refuse(self, exchange: Exchange, status: int, reason: str) -> None:
        """Answer a request that HTTP itself forbids (400, 408, 413, 414, 431, 501), in our error form."""


# Response headers that go with every answer (base protocol, 10.7).
SECURITY_HEADERS: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"cross-origin"),
]
# For browser clients. Answers that a cache may keep always have them, so that what one client fetched suits
# the next; a write that says no Origin does not come from a browser and can do without.
CORS_HEADERS: Headers = [
    (b"access-control-allow-origin", b"*"),
    (
        b"access-control-expose-headers",
        b"Stream-Next-Offset, Stream-Cursor, Stream-Up-To-Date, Stream-Closed, Stream-TTL, "
        b"Stream-Expires-At, Stream-SSE-Data-Encoding, Stream-Snapshot-Offset, Producer-Epoch, Producer-Seq, "
        b"Producer-Expected-Seq, Producer-Received-Seq, Location, ETag, Retry-After, Upstream-Content-Type, "
        b"Upstream-Status, Stream-Response-Id, Feed-Next-Position, Feed-Head-Position, "
        b"Feed-Earliest-Position",
    ),
]

COMMON_HEADERS: Headers = [*SECURITY_HEADERS, *CORS_HEADERS]


def is_plain_write(request: Request) -> bool:
    """A write from outside any browser."""
    return request.method in ("POST", "PUT", "DELETE", "PATCH") and b"origin" not in request.headers
