"""A span per request for an OpenTelemetry collector, when asked for; see `front`, which begins and ends them.

The SDK queues what has ended and sends it from a thread of its own. Its queue is bounded: with a collector
that is slow or dead, spans are dropped and requests are not.
"""

import asyncio
import threading
from typing import TYPE_CHECKING, Final

import perennial
from perennial.http.exchange import Request
from perennial.http.observed import ObservedExchange
from perennial.http.traffic import METHODS, surface_of
from perennial.settings import SettingsError

if TYPE_CHECKING:
    from opentelemetry.trace import Span

TRACES_PATH: Final = "/v1/traces"
# How long the end of the server may wait for the collector to take what is left.
FLUSH_SECONDS: Final = 3.0
# What the server itself answers by name; everything else is a template or nothing.
PLAIN_ROUTES: Final = frozenset(
    {b"/", b"/healthz", b"/readyz", b"/metrics", b"/v1/proxy", b"/v1/admin/backup"}
)
CONTEXT_HEADERS: Final = ("traceparent", "tracestate")


class Tracing:
    def __init__(self, endpoint: str) -> None:
        """`endpoint`: the collector's address, with or without the path for traces."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace import SpanKind, Status, StatusCode
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            raise SettingsError(
                "otel_endpoint needs the OpenTelemetry packages: pip install 'perennial[otel]'"
            ) from error
        resource = Resource.create()  # with what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say
        ours = {"service.version": perennial.__version__}
        if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
            ours["service.name"] = "perennial"
        self._provider = TracerProvider(resource=resource.merge(Resource(ours)), shutdown_on_exit=False)
        url = endpoint.rstrip("/")
        exporter = OTLPSpanExporter(url if url.endswith(TRACES_PATH) else url + TRACES_PATH)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("perennial", perennial.__version__)
        self._propagator = TraceContextTextMapPropagator()
        self._kind = SpanKind.SERVER
        self._failed = Status(StatusCode.ERROR)

    def begin(self, request: Request, request_id: str) -> "Span":
        headers = request.headers
        context = None
        if b"traceparent" in headers:
            carrier = {name: headers[name.encode()] for name in CONTEXT_HEADERS if name.encode() in headers}
            context = self._propagator.extract(carrier)
        method = request.method if request.method in METHODS else "_OTHER"
        route = route_of(request.path)
        attributes = {
            "http.request.method": method,
            "url.scheme": request.scheme,
            "perennial.surface": surface_of(request.path),
            "perennial.request_id": request_id,
        }
        if route:
            attributes["http.route"] = route
        word = "HTTP" if method == "_OTHER" else method
        name = f"{word} {route}" if route else word
        return self._tracer.start_span(name, context, self._kind, attributes)

    def end(self, span: "Span", exchange: ObservedExchange, received: int, broken: bool) -> None:
        if span.is_recording():
            status = exchange.status
            span.set_attribute("http.request.body.size", received)
            span.set_attribute("http.response.body.size", exchange.sent)
            if status:
                span.set_attribute("http.response.status_code", status)
            if broken:
                span.set_attribute("perennial.broken_off", True)
            if status >= 500 or exchange.aborted:
                # Whoever leaves a tail has done nothing wrong; an answer that we broke off has failed.
                span.set_attribute("error.type", "aborted" if exchange.aborted else str(status))
                span.set_status(self._failed)
        span.end()

    async def close(self) -> None:
        """Send what is left, if the collector takes it in time."""
        # Not in the loop's own threads, which it would wait for without end.
        flushing = threading.Thread(target=self._provider.shutdown, daemon=True)
        flushing.start()
        await asyncio.to_thread(flushing.join, FLUSH_SECONDS)


def route_of(path: bytes) -> str:
    """The template that a path follows, without any name in it; empty if there is none."""
    if path.startswith(b"/v1/stream/"):
        return "/v1/stream/{name}"
    if path.startswith(b"/ds/"):
        return _bucket_route(path.split(b"/")[3:])
    if path.startswith(b"/v1/feed/"):
        return "/v1/feed/{bucket}"
    if path.startswith(b"/v1/proxy/"):
        return "/v1/proxy/{stream-id}"
    return path.decode() if path in PLAIN_ROUTES else ""


def _bucket_route(below: list[bytes]) -> str:
    match below:
        case []:
            return "/ds/{bucket}"
        case [b"streams"]:
            return "/ds/{bucket}/streams"
        case [_]:
            return "/ds/{bucket}/{stream}"
        case [_, b"bootstrap" | b"snapshot" as part]:
            return f"/ds/{{bucket}}/{{stream}}/{part.decode()}"
        case [_, b"snapshot", _]:
            return "/ds/{bucket}/{stream}/snapshot/{offset}"
    return ""
