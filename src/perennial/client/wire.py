"""A small blocking HTTP client: keep-alive, answers read piece by piece, one exception for a lost peer."""

import http.client
import socket
import ssl
import threading
import time
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from perennial.client.address import SOCKET_ORIGIN
from perennial.client.calls import Call

# A server closes idle connections; younger ones than this are surely still good.
FRESH_SECONDS: Final = 5.0
PIECE_BYTES: Final = 64 * 1024

Connection = http.client.HTTPConnection
Origin = tuple[str, str]


class ConnectionLost(Exception):
    """The peer could not be reached, or went away in the middle."""


class Answer:
    """A response whose body has not been read. Use it as a context."""

    def __init__(
        self, wire: "Wire", origin: Origin, connection: Connection, raw: http.client.HTTPResponse
    ) -> None:
        self._wire = wire
        self._origin = origin
        self._connection = connection
        self._raw = raw
        self.status = raw.status
        self.headers = {name.lower(): value for name, value in raw.getheaders()}

    def read_piece(self) -> bytes:
        """Some of the body, as soon as there is some; empty at its end."""
        try:
            piece = self._raw.read1(PIECE_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionLost("the connection broke in the middle of an answer") from error
        if not piece and self._raw.length:
            raise ConnectionLost("the connection ended in the middle of an answer")
        return piece

    def read(self) -> bytes:
        try:
            return self._raw.read()
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionLost("the connection broke in the middle of an answer") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An answer that broke off counts as closed, too.
        if error is None and self._raw.isclosed() and not self._raw.will_close:
            self._wire.keep(self._origin, self._connection)
        else:
            self._connection.close()


class SocketConnection(http.client.HTTPConnection):
    """To a Unix socket. Its host is only a name to be sent."""

    def __init__(self, path: str, host: str, timeout_seconds: float) -> None:
        super().__init__(host, timeout=timeout_seconds)
        self._path = path

    def connect(self) -> None:
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connecting.settimeout(self.timeout)
            connecting.connect(self._path)
        except OSError:
            connecting.close()
            raise
        self.sock = connecting


class Wire:
    """Connections to any number of origins; may be used from several threads.

    `socket_path` is the Unix socket behind `SOCKET_ORIGIN`, if there is one.
    """

    def __init__(
        self, timeout_seconds: float, context: ssl.SSLContext | None = None, socket_path: str | None = None
    ) -> None:
        self._timeout = timeout_seconds
        self._context = context
        self._socket_path = socket_path
        self._idle: dict[Origin, list[tuple[float, Connection]]] = {}
        self._lock = threading.Lock()

    def send(self, call: Call) -> Answer:
        parts = urlsplit(call.url)
        origin = (parts.scheme, parts.netloc)
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        connection = self._connection(origin)
        try:
            # http.client gives bodiless methods no length, which is right for all but POST.
            body = call.body if call.body or call.method == "POST" else None
            # As UTF-8, like everyone else today; http.client's own choice knows western letters only.
            headers = {name: value.encode() for name, value in call.headers.items()}
            refused = False
            try:
                connection.request(call.method, target, body, headers)
            except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
                refused = True  # perhaps: whoever does not want the rest of a body may have said why
            raw = connection.getresponse()
            raw.will_close |= refused
            if raw.length is None and not raw.chunked:
                # A head that breaks off looks like one that ends; but ours always say how long the body is.
                raise http.client.IncompleteRead(b"")
            return Answer(self, origin, connection, raw)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ConnectionLost(f"no answer from {self._place(origin)} ({type(error).__name__})") from error

    def keep(self, origin: Origin, connection: Connection) -> None:
        with self._lock:
            self._idle.setdefault(origin, []).append((time.monotonic(), connection))

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for _, connection in connections:
                connection.close()

    def _connection(self, origin: Origin) -> Connection:
        with self._lock:
            waiting = self._idle.get(origin, [])
            while waiting:
                since, connection = waiting.pop()
                if time.monotonic() - since < FRESH_SECONDS:
                    return connection
                connection.close()
        try:
            return self._connect(origin)
        except OSError as error:
            reason = error.strerror or error
            raise ConnectionLost(f"cannot connect to {self._place(origin)}: {reason}") from error

    def _connect(self, origin: Origin) -> Connection:
        scheme, netloc = origin
        fresh: Connection
        if (path := self._path(origin)) is not None:
            fresh = SocketConnection(path, netloc, self._timeout)
            fresh.connect()
            return fresh
        if scheme == "https":
            fresh = http.client.HTTPSConnection(netloc, timeout=self._timeout, context=self._context)
        else:
            fresh = http.client.HTTPConnection(netloc, timeout=self._timeout)
        fresh.connect()
        fresh.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return fresh

    def _path(self, origin: Origin) -> str | None:
        return self._socket_path if "://".join(origin) == SOCKET_ORIGIN else None

    def _place(self, origin: Origin) -> str:
        path = self._path(origin)
        return origin[1] if path is None else f"unix:{path}"
