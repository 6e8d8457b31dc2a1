"""HTTP/1.1 as bytes on a socket: for tests that send what no client library would, or must see who said what
when. One connection, no retries, no pooling; whatever goes wrong with it is a `ConnectionError`."""

import re
import select
import socket
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

PATIENCE_SECONDS = 20.0

_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([0-9]{3}) [^\r\n]*\r\n")


class CutOff(ConnectionError):
    """The connection ended before the answer was complete."""


class Answer(NamedTuple):
    """Header names are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def next_offset(self) -> str:
        return self.headers["stream-next-offset"]

    @property
    def reason(self) -> str:
        """The sentence in an error's body."""
        return str(self.error["message"])

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.body)["error"]
        return found


class SseEvent(NamedTuple):
    kind: str
    data: str

    @property
    def control(self) -> dict[str, Any]:
        assert self.kind == "control", self
        found: dict[str, Any] = msgspec.json.decode(self.data)
        return found


class Wire:
    """One connection to a server on this machine."""

    def __init__(
        self, port: int, patience: float = PATIENCE_SECONDS, receive_buffer: int | None = None
    ) -> None:
        self._socket = socket.socket()
        self._socket.settimeout(patience)
        if receive_buffer is not None:  # set before connecting, or the window is already larger
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            self._socket.connect(("127.0.0.1", port))
        except OSError:
            self._socket.close()
            raise
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Asking

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        """Send a request and do not wait for its answer."""
        self.send(encode_request(method, path, headers, body))

    def end(self) -> None:
        """Nothing more will be sent."""
        self._socket.shutdown(socket.SHUT_WR)

    # Listening

    def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        self.ask(method, path, headers, body)
        return self.answer(method)

    def answer(self, method: str = "GET") -> Answer:
        """The next answer, whole. `method` is what was asked: the answer to HEAD has no body."""
        status, headers = self.head()
        if method == "HEAD" or status in (204, 304):
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body = b"".join(self.chunks())
        elif "content-length" in headers:
            body = self._exactly(int(headers["content-length"]))
        else:
            body = self.rest()
        return Answer(status, headers, body)

    def head(self) -> tuple[int, dict[str, str]]:
        """The beginning of the next answer; its body, or its `chunks` or `events`, are still to come."""
        line = self._line()
        match = _STATUS_LINE.fullmatch(line)
        assert match is not None, f"not a status line: {line!r}"
        headers: dict[str, str] = {}
        while (line := self._line()) != b"\r\n":
            name, separator, value = line.decode("latin-1").partition(":")
            assert separator, f"not a header: {line!r}"
            headers[name.lower()] = value.strip()
        return int(match[1]), headers

    def chunks(self) -> Iterator[bytes]:
        """A chunked body, as the chunks come."""
        while size := int(self._line(), 16):
            data = self._exactly(size)
            assert self._exactly(2) == b"\r\n"
            yield data
        assert self._exactly(2) == b"\r\n"

    def events(self) -> Iterator[SseEvent]:
        """A body of server-sent events, as they come; heartbeats are left out."""
        text = b""
        for chunk in self.chunks():
            text += chunk
            *complete, text = text.split(b"\n\n")
            yield from (event for event in map(_parse_event, complete) if event is not None)
        assert not text, f"the stream of events ended inside one: {text!r}"

    def is_quiet(self, seconds: float = 0.0) -> bool:
        """Nothing has come, and nothing comes within so many seconds."""
        return not self._received and not select.select([self._socket], [], [], seconds)[0]

    def rest(self) -> bytes:
        """All that still comes, until the server ends the connection."""
        while self._receive():
            pass
        return self._take(len(self._received))

    def _line(self) -> bytes:
        while (end := self._received.find(b"\n")) < 0:
            if not self._receive():
                raise CutOff("in the middle of a line" if self._received else "before the answer")
        return self._take(end + 1)

    def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            if not self._receive():
                raise CutOff("in the middle of a body")
        return self._take(size)

    def _receive(self) -> bool:
        data = self._socket.recv(1 << 18)
        self._received += data
        return bool(data)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken


def encode_request(
    method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: test"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body or method in ("POST", "PUT"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _parse_event(text: bytes) -> SseEvent | None:
    kind = ""
    data = []
    for line in text.decode().split("\n"):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            kind = value
        elif field == "data":
            data.append(value)
    return SseEvent(kind, "\n".join(data)) if kind else None
