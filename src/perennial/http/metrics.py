"""The page at `/metrics`: what the parts have counted, in the words of Prometheus.

Nothing here runs until someone asks, and the library is not even loaded before that. Names follow its
conventions: a unit in the name, `_total` on what only grows.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import perennial
from perennial.http.live import LiveReads
from perennial.http.pulse import Pulse
from perennial.http.rates import Rates
from perennial.http.traffic import Traffic
from perennial.service.measures import Histogram
from perennial.service.streams import StreamService

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Door(Protocol):
    @property
    def connections(self) -> int: ...

    @property
    def turned_away(self) -> int: ...


class Metrics:
    def __init__(
        self,
        service: StreamService,
        traffic: Traffic,
        live: LiveReads,
        pulse: Pulse,
        rates: Rates,
        readiness: Callable[[], Sequence[str]],
    ) -> None:
        self._service = service
        self._traffic = traffic
        self._live = live
        self._pulse = pulse
        self._rates = rates
        # Whoever listens for us, if it counts connections.
        self.door: Door | None = None
        self._readiness = readiness
        self._registry: Any = None

    def page(self, accept: str) -> tuple[str, bytes]:
        """Content type and body, in the format the scraper asked for."""
        from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
        from prometheus_client.exposition import choose_encoder

        if self._registry is None:
            self._registry = CollectorRegistry()
            self._registry.register(self)
            for collector in (ProcessCollector, PlatformCollector, GCCollector):
                collector(registry=self._registry)
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)

    def describe(self) -> Sequence["Metric"]:
        """For the registry: nothing to check in advance."""
        return []

    def collect(self) -> Iterator["Metric"]:
        yield from self._requests()
        yield from self._commits()
        yield from self._readers()
        yield from self._store()
        yield _histogram(
            "perennial_event_loop_lag_seconds", "How late the event loop ran a timer", self._pulse.lag
        )

    def _requests(self) -> Iterator["Metric"]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

        yield InfoMetricFamily(
            "perennial", "The server", value={"version": perennial.__version__, "protocol": "durable-streams"}
        )
        not_ready = len(self._readiness())
        yield GaugeMetricFamily("perennial_ready", "1 when /readyz says so", value=float(not not_ready))
        requests = CounterMetricFamily(
            "perennial_requests", "Requests answered", labels=("surface", "method", "status")
        )
        for surface, method, status, count in self._traffic:
            requests.add_metric((surface, method, str(status)), count)
        yield requests
        refused = CounterMetricFamily(
            "perennial_refused", "Requests refused to protect the server", labels=("limit",)
        )
        refused.add_metric(("rate",), self._rates.throttled)
        refused.add_metric(("live_readers",), self._live.turned_away)
        if self.door is not None:
            refused.add_metric(("connections",), self.door.turned_away)
        yield refused
        if self.door is not None:
            yield GaugeMetricFamily("perennial_connections", "Open connections", value=self.door.connections)

    def _commits(self) -> Iterator["Metric"]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        committer = self._service.committer
        measures = committer.measures
        yield _histogram("perennial_commit_records", "Appends and closes in a commit", measures.records)
        yield _histogram("perennial_commit_bytes", "Payload bytes in a commit", measures.bytes)
        yield _histogram("perennial_commit_seconds", "Writing and syncing a commit", measures.seconds)
        yield _histogram(
            "perennial_visible_lag_seconds",
            "From the first record accepted for a commit until readers see it",
            measures.lag,
        )
        yield GaugeMetricFamily(
            "perennial_unsettled_seconds",
            "Age of the oldest change that is accepted and not durable yet",
            value=committer.unsettled_seconds,
        )
        yield CounterMetricFamily("perennial_commit_failures", "Commits that failed", value=measures.failures)

    def _readers(self) -> Iterator["Metric"]:
        from prometheus_client.core import GaugeMetricFamily

        readers = GaugeMetricFamily("perennial_live_readers", "Waiting or following reads", labels=("mode",))
        for mode, count in self._live.count().items():
            readers.add_metric((mode,), count)
        yield readers
        yield GaugeMetricFamily(
            "perennial_streams_in_memory", "Streams whose state is loaded", value=len(self._service.handles)
        )

    def _store(self) -> Iterator["Metric"]:
        from prometheus_client.core import GaugeMetricFamily

        sizes = GaugeMetricFamily("perennial_store_bytes", "Size of the store by part", labels=("part",))
        for part, size in sorted(self._service.store.sizes().items()):
            sizes.add_metric((part,), size)
        yield sizes


def _histogram(name: str, text: str, histogram: Histogram) -> "Metric":
    from prometheus_client.core import HistogramMetricFamily

    seen = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        seen += count
        buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), seen))
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=histogram.total)
