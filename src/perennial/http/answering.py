"""How an exchange of the native connection answers: what is written, and how it is framed."""

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from perennial.http.exchange import Body, Exchange, Headers, SharedChunk, is_plain_write
from perennial.http.parsing import ParsedRequest
from perennial.http.responses import (
    CHUNKED,
    CLOSE,
    JOIN_BYTES,
    KEEP_ALIVE,
    LAST_CHUNK,
    encode_headers,
    frame_chunk,
)
from perennial.http.state import ServerState

# How the body of an answer is framed, once it has begun.
NOT_BEGUN: Final = 0
NO_BODY: Final = 1
IN_CHUNKS: Final = 2
UNTIL_CLOSE: Final = 3  # HTTP/1.0: the end of the connection is the end of the body

log = logging.getLogger(__name__)


class Line(Protocol):
    """A connection, as its exchanges see it."""

    state: ServerState
    blocked: bool

    def write(self, data: bytes) -> None: ...

    def write_many(self, pieces: Sequence[bytes | memoryview]) -> None: ...

    def answered(self, request: ParsedRequest) -> None:
        """The answer to the request has been written."""

    def drop(self, reset: bool) -> None:
        """Give the connection up in the middle of an answer."""


class NativeExchange(Exchange):
    """One request of a connection. It lets go of the connection when its answer has ended."""

    __slots__ = ("_framing", "_line")

    def __init__(self, request: ParsedRequest, line: Line) -> None:
        # Every slot is set here and not through Exchange.__init__: this runs once per request.
        self.request: ParsedRequest = request
        self.on_closed = None
        self.on_writable = None
        self._line: Line | None = line
        self._framing: int = NOT_BEGUN

    def respond(self, status: int, headers: Headers, body: Body = b"") -> None:
        line = self._line
        if line is None:
            return
        assert self._framing == NOT_BEGUN, "an answer was begun already"
        state = line.state
        request = self.request
        tally = request.tally
        if tally is not None:
            tally[status] += 1
        heads = state.plain_heads if is_plain_write(request) else state.heads
        head = heads[status] + encode_headers(headers)
        if not request.keep_alive or state.draining:
            head += CLOSE
        elif request.old:
            head += KEEP_ALIVE
        if status == 204 or status == 304:
            line.write(head + b"\r\n")  # which may not say a length (RFC 9110, 8.6)
        else:
            self._write_with_length(line, head, (body,) if isinstance(body, bytes) else body)
        self._line = self.on_closed = self.on_writable = None
        line.answered(request)

    def _write_with_length(self, line: Line, head: bytes, pieces: Sequence[bytes | memoryview]) -> None:
        size = sum(map(len, pieces))
        if self.request.method == "HEAD":
            # The length a GET would have, if the application knows it.
            line.write(head + (b"content-length: %d\r\n\r\n" % size if size else b"\r\n"))
        elif size <= JOIN_BYTES:
            line.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, size, b"".join(pieces)))
        else:
            line.write_many((b"%bcontent-length: %d\r\n\r\n" % (head, size), *pieces))

    def begin(self, status: int, headers: Headers) -> None:
        line = self._line
        if line is None:
            return
        assert self._framing == NOT_BEGUN, "an answer was begun already"
        request = self.request
        if request.tally is not None:
            request.tally[status] += 1
        head = line.state.heads[status] + encode_headers(headers)
        if request.method == "HEAD" or status == 204 or status == 304:
            self._framing = NO_BODY
        elif request.old:
            self._framing = UNTIL_CLOSE
            request.keep_alive = False
        else:
            self._framing = IN_CHUNKS
            head += CHUNKED
        if not request.keep_alive or line.state.draining:
            head += CLOSE
        elif request.old:
            head += KEEP_ALIVE
        line.write(head + b"\r\n")

    def send(self, data: bytes) -> None:
        line = self._line
        if line is None:
            return
        assert self._framing != NOT_BEGUN, "send comes after begin"
        if self._framing == IN_CHUNKS:
            if len(data) <= JOIN_BYTES:
                line.write(frame_chunk(data))
            else:
                line.write_many((b"%x\r\n" % len(data), data, b"\r\n"))
        elif self._framing == UNTIL_CLOSE:
            line.write(data)

    def send_shared(self, chunk: SharedChunk) -> None:
        line = self._line
        if line is None or self._framing != IN_CHUNKS:
            self.send(chunk.data)
            return
        framed = chunk.framed
        if framed is None:
            framed = chunk.framed = frame_chunk(chunk.data)
        line.write(framed)

    def end(self) -> None:
        line = self._line
        if line is None:
            return
        assert self._framing != NOT_BEGUN, "end comes after begin"
        if self._framing == IN_CHUNKS:
            line.write(LAST_CHUNK)
        self._line = self.on_closed = self.on_writable = None
        line.answered(self.request)

    def abort(self) -> None:
        line = self._line
        if line is not None:
            # A chunked answer without its last chunk is visibly incomplete. One that ends with the
            # connection is not, unless the connection is reset.
            line.drop(reset=self._framing == UNTIL_CLOSE)
            self.peer_gone()

    @property
    def writable(self) -> bool:
        return self._line is not None and not self._line.blocked

    @property
    def closed(self) -> bool:
        return self._line is None

    # For the connection

    @property
    def begun(self) -> bool:
        return self._framing != NOT_BEGUN

    def peer_gone(self) -> None:
        on_closed = self.on_closed
        self._line = self.on_closed = self.on_writable = None
        if on_closed is not None:
            try:
                on_closed()
            except Exception:
                log.exception("%s %r failed to let go of its peer", self.request.method, self.request.path)
