"""For whoever runs the server: `/healthz` (is it alive?), `/readyz` (send it traffic?), `/metrics`."""

from collections.abc import Callable
from typing import Final

import msgspec

from perennial.http.exchange import Exchange, Headers
from perennial.http.metrics import Metrics
from perennial.service.streams import StreamService

NO_STORE: Final = (b"cache-control", b"no-store")


class Readiness:
    """Why traffic should go elsewhere. While the store is not even open, `recovering` answers for us."""

    def __init__(self, service: StreamService) -> None:
        self._service = service
        self.draining = False

    def reasons(self) -> list[str]:
        """Open to everyone, so they name no file and no path: the log does."""
        committer = self._service.committer
        found = []
        if self.draining:
            found.append("stopping")
        if committer.read_only is not None:
            found.append(committer.read_only)
        return found


class OperationsSurface:
    def __init__(self, readiness: Readiness, metrics: Metrics) -> None:
        self._readiness = readiness
        self._metrics = metrics
        self.pages: dict[str, Callable[[Exchange], None]] = {
            "/healthz": self.healthz,
            "/readyz": self.readyz,
            "/metrics": self.metrics,
        }

    def healthz(self, exchange: Exchange) -> None:
        """The process answers: that is all it says."""
        exchange.respond(200, [(b"content-type", b"text/plain")], b"ok\n")

    def readyz(self, exchange: Exchange) -> None:
        reasons = self._readiness.reasons()
        headers: Headers = [(b"content-type", b"application/json"), NO_STORE]
        if reasons:
            headers.append((b"retry-after", b"1"))
        body = msgspec.json.encode({"ready": not reasons, "reasons": reasons})
        exchange.respond(503 if reasons else 200, headers, body)

    def metrics(self, exchange: Exchange) -> None:
        content_type, body = self._metrics.page(exchange.request.headers.get(b"accept", ""))
        exchange.respond(200, [(b"content-type", content_type.encode()), NO_STORE], body)
