"""An exchange that tells someone how it went: status, bytes, and when it was over."""

from collections.abc import Callable

from perennial.http.exchange import Body, Exchange, Headers, SharedChunk


class ObservedExchange(Exchange):
    """Stands in front of another one. Made only when something wants to know; see `front`."""

    __slots__ = ("_extra", "_inner", "_on_closed", "_over", "aborted", "sent", "status")

    def __init__(
        self, inner: Exchange, extra: Headers, over: Callable[["ObservedExchange", bool], None]
    ) -> None:
        self.request = inner.request
        self._inner = inner
        self._extra = extra  # headers for the answer
        self._on_closed: Callable[[], None] | None = None
        self._over: Callable[[ObservedExchange, bool], None] | None = over  # with True: broken off
        self.status = 0
        self.sent = 0  # bytes of the answer's body
        self.aborted = False  # by us, not by the peer
        inner.on_closed = self._closed

    def respond(self, status: int, headers: Headers, body: Body = b"") -> None:
        if self._inner.closed:
            return
        self.status = status
        self._inner.respond(status, [*headers, *self._extra], body)
        if self.request.method != "HEAD" and status not in (204, 304):
            self.sent = len(body) if isinstance(body, bytes) else sum(map(len, body))
        self._finish(broken=False)

    def begin(self, status: int, headers: Headers) -> None:
        self.status = status
        self._inner.begin(status, [*headers, *self._extra])

    def send(self, data: bytes) -> None:
        self.sent += len(data)
        self._inner.send(data)

    def send_shared(self, chunk: SharedChunk) -> None:
        self.sent += len(chunk.data)
        self._inner.send_shared(chunk)

    def end(self) -> None:
        self._inner.end()
        self._finish(broken=False)

    def abort(self) -> None:
        self.aborted = True
        self._inner.abort()
        self._finish(broken=True)

    @property
    def writable(self) -> bool:
        return self._inner.writable

    @property
    def closed(self) -> bool:
        return self._inner.closed

    @property
    def on_closed(self) -> Callable[[], None] | None:
        return self._on_closed

    @on_closed.setter
    def on_closed(self, call: Callable[[], None] | None) -> None:
        self._on_closed = call

    @property
    def on_writable(self) -> Callable[[], None] | None:
        return self._inner.on_writable

    @on_writable.setter
    def on_writable(self, call: Callable[[], None] | None) -> None:
        self._inner.on_writable = call

    def _closed(self) -> None:
        try:
            if self._on_closed is not None:
                self._on_closed()
        finally:
            self._finish(broken=True)

    def _finish(self, broken: bool) -> None:
        self._on_closed = None
        over, self._over = self._over, None
        if over is not None:
            over(self, broken)
