"""A little OpenTelemetry collector: takes spans over OTLP/HTTP and remembers them."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE_SECONDS = 20.0


class Span:
    def __init__(self, raw: Any, resource: dict[str, Any]) -> None:
        self.name: str = raw.name
        self.trace_id: str = raw.trace_id.hex()
        self.parent_id: str = raw.parent_span_id.hex()
        self.is_server = raw.kind == raw.SPAN_KIND_SERVER
        self.failed = raw.status.code == raw.status.STATUS_CODE_ERROR
        self.seconds = (raw.end_time_unix_nano - raw.start_time_unix_nano) / 1e9
        self.attributes = attributes(raw.attributes)
        self.resource = resource


class Collector:
    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.bodies: list[bytes] = []
        self._grown = threading.Condition()

    def take(self, body: bytes) -> None:
        with self._grown:
            self.bodies.append(body)
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = attributes(group.resource.attributes)
                self.spans += [Span(raw, resource) for scope in group.scope_spans for raw in scope.spans]
            self._grown.notify_all()

    def find(self, **wanted: Any) -> Span:
        """The one span with these attributes (`_` for `.` in their names), once it has come."""
        with self._grown:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not (found := self._matching(wanted)):
                assert self._grown.wait(deadline - time.monotonic()), f"no {wanted} in {self.names}"
        assert len(found) == 1, f"{len(found)} spans with {wanted}"
        return found[0]

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def _matching(self, wanted: dict[str, Any]) -> list[Span]:
        return [
            span
            for span in self.spans
            if wanted.items()
            <= {key.replace(".", "_"): value for key, value in span.attributes.items()}.items()
        ]


def attributes(raw: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in raw}


@contextmanager
def running_collector() -> Iterator[tuple[Collector, str]]:
    """The collector and its address."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found = self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf"
            if found:
                collector.take(body)
            self.send_response(200 if found else 404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collector, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
