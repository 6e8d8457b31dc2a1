"""Spans as a collector gets them, and a server that does not depend on it."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from perennial.cli.exits import Code
from tests.harness.gate import GatedServer
from tests.operations.collector import Collector, running_collector
from tests.operations.servers import SERVICE, TEXT, OperatedServer
from tests.upstream import Reply, running_upstream

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
AT_ONCE = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
AT_THE_END = {"OTEL_BSP_SCHEDULE_DELAY": "3600000"}


@pytest.fixture(scope="module")
def collecting() -> Iterator[tuple[Collector, str]]:
    with running_collector() as running:
        yield running


@pytest.fixture(scope="module")
def collector(collecting: tuple[Collector, str]) -> Collector:
    return collecting[0]


@pytest.fixture(scope="module")
def server(
    collecting: tuple[Collector, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatedServer]:
    config = f"""
        otel_endpoint = "{collecting[1]}"
        sse_max_age = 0.5
        proxy_allow = ["http://127.0.0.1:*/**"]
        proxy_allow_private = true
        auth_tokens = ["{SERVICE}"]
    """
    with OperatedServer(tmp_path_factory.mktemp("traces"), config, AT_ONCE) as running:
        yield running


@pytest.fixture
def client(server: OperatedServer) -> Iterator[httpx.Client]:
    with server.client(SERVICE) as service:
        yield service


def named(request_id: str) -> dict[str, str]:
    return {**TEXT, "X-Request-Id": request_id}


def test_a_request_is_a_span_that_tells_how_it_went(client: httpx.Client, collector: Collector) -> None:
    client.put("/v1/stream/a", headers=TEXT).raise_for_status()
    client.post("/v1/stream/a", headers=named("told"), content=b"12345").raise_for_status()
    client.get("/v1/stream/a", headers=named("read")).raise_for_status()
    written, read = collector.find(perennial_request_id="told"), collector.find(perennial_request_id="read")
    assert written.name == "POST /v1/stream/{name}"
    assert written.is_server
    assert not written.failed
    assert not written.parent_id
    assert 0 < written.seconds < 10
    assert written.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/stream/{name}",
        "http.response.status_code": 204,
        "http.request.body.size": 5,
        "http.response.body.size": 0,
        "url.scheme": "http",
        "perennial.surface": "stream",
        "perennial.request_id": "told",
    }
    assert (read.name, read.attributes["http.response.body.size"]) == ("GET /v1/stream/{name}", 5)
    assert read.resource["service.name"] == "perennial"


def test_the_trace_of_the_caller_goes_on(client: httpx.Client, collector: Collector) -> None:
    client.get("/v1/stream/none", headers={"traceparent": TRACEPARENT, **named("child")})
    client.get("/v1/stream/none", headers={"traceparent": "00-nonsense-01", **named("orphan")})
    child, orphan = (
        collector.find(perennial_request_id="child"),
        collector.find(perennial_request_id="orphan"),
    )
    assert (child.trace_id, child.parent_id) == (TRACE, PARENT)
    assert not orphan.parent_id


def test_names_and_secrets_stay_out_of_traces(client: httpx.Client, collector: Collector) -> None:
    paths = {
        "/v1/stream/hush-name?token=hush-query": "/v1/stream/{name}",
        "/ds/hush-bucket": "/ds/{bucket}",
        "/ds/hush-bucket/streams": "/ds/{bucket}/streams",
        "/ds/hush-bucket/hush-stream": "/ds/{bucket}/{stream}",
        "/ds/hush-bucket/hush-stream/snapshot": "/ds/{bucket}/{stream}/snapshot",
        "/ds/hush-bucket/hush-stream/snapshot/0": "/ds/{bucket}/{stream}/snapshot/{offset}",
        "/ds/hush-bucket/hush-stream/bootstrap": "/ds/{bucket}/{stream}/bootstrap",
        "/v1/feed/hush-bucket": "/v1/feed/{bucket}",
        "/v1/proxy/hush-id?signature=hush-signature": "/v1/proxy/{stream-id}",
        "/readyz": "/readyz",
        "/hush/elsewhere": None,
    }
    for number, path in enumerate(paths):
        client.get(path, headers=named(f"route-{number}"))
    for number, route in enumerate(paths.values()):
        span = collector.find(perennial_request_id=f"route-{number}")
        assert span.attributes.get("http.route") == route
        assert span.name == ("GET" if route is None else f"GET {route}")
    assert b"hush" not in b"".join(collector.bodies)
    assert SERVICE.encode() not in b"".join(collector.bodies)


def test_a_live_read_is_one_span_as_long_as_it_lasts(client: httpx.Client, collector: Collector) -> None:
    client.put("/v1/stream/live", headers=TEXT).raise_for_status()
    client.get("/v1/stream/live?offset=-1&live=sse", headers=named("live"), timeout=10)
    span = collector.find(perennial_request_id="live")
    assert span.seconds > 0.4
    assert span.attributes["http.response.status_code"] == 200
    assert span.attributes["http.response.body.size"] > 0
    assert not span.failed


def test_leaving_a_live_read_is_no_error(client: httpx.Client, collector: Collector) -> None:
    client.put("/v1/stream/left", headers=TEXT).raise_for_status()
    with client.stream("GET", "/v1/stream/left?offset=-1&live=sse", headers=named("left")) as follower:
        lines = follower.iter_lines()
        next(lines)
    span = collector.find(perennial_request_id="left")
    assert span.attributes["perennial.broken_off"] is True
    assert not span.failed


def test_failures_of_the_server_are_marked_and_mistakes_of_the_client_are_not(
    tmp_path: Path, collecting: tuple[Collector, str]
) -> None:
    collector, url = collecting
    settings = {"PERENNIAL_OTEL_ENDPOINT": f"{url}/v1/traces", "OTEL_SERVICE_NAME": "gated", **AT_ONCE}
    with GatedServer(tmp_path / "data", settings) as server, httpx.Client(base_url=server.url) as client:
        client.put("/v1/stream/s", headers=TEXT).raise_for_status()
        client.get("/v1/stream/none", headers=named("mistaken"))
        server.fail()
        assert client.post("/v1/stream/s", headers=named("failed"), content=b"x").status_code == 503
        failed = collector.find(perennial_request_id="failed")
        assert failed.failed
        assert failed.attributes["error.type"] == "503"
        assert failed.resource["service.name"] == "gated"
        assert not collector.find(perennial_request_id="mistaken").failed
        server.release()
        server.kill()


def test_an_unknown_method_is_a_span_without_its_name(client: httpx.Client, collector: Collector) -> None:
    client.request("BREW", "/v1/stream/tea")
    assert collector.find(http_request_method="_OTHER").name.startswith("HTTP")


def test_an_upstream_sees_the_traceparent_that_the_client_sent_and_no_other(client: httpx.Client) -> None:
    with running_upstream() as upstream:
        url = upstream.on("/x", Reply(body=[b"ok"]))
        ask = {"Upstream-URL": url, "Upstream-Method": "POST"}
        client.post("/v1/proxy", headers=ask).raise_for_status()
        client.post("/v1/proxy", headers={**ask, "traceparent": TRACEPARENT}).raise_for_status()
        without, with_one = (exchange.received for exchange in upstream.exchanges)
        assert without.header("traceparent") is None
        assert with_one.header("traceparent") == TRACEPARENT


def test_what_is_left_is_sent_when_the_server_stops(
    tmp_path: Path, collecting: tuple[Collector, str]
) -> None:
    collector, url = collecting
    with (
        OperatedServer(tmp_path, f'otel_endpoint = "{url}"', AT_THE_END) as server,
        server.client() as client,
    ):
        client.get("/v1/stream/none", headers=named("last"))
        assert not [span for span in collector.spans if span.attributes["perennial.request_id"] == "last"]
    collector.find(perennial_request_id="last")


@pytest.mark.parametrize("collector_is", ["gone", "silent"])
def test_a_dead_collector_harms_nobody(tmp_path: Path, collector_is: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # connections are made, and never answered
        port = listener.getsockname()[1]
        if collector_is == "gone":
            listener.close()
        settings = {**AT_ONCE, "OTEL_BSP_MAX_QUEUE_SIZE": "64", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "16"}
        server = OperatedServer(tmp_path, f'otel_endpoint = "http://127.0.0.1:{port}"', settings).start()
        with server.client() as client:
            client.put("/v1/stream/s", headers=TEXT).raise_for_status()
            slowest = 0.0
            for _ in range(500):  # many times what the queue holds
                began = time.perf_counter()
                client.post("/v1/stream/s", headers=TEXT, content=b"x").raise_for_status()
                slowest = max(slowest, time.perf_counter() - began)
        assert slowest < 2, "the exporter waits for 10 s"
        began = time.perf_counter()
        server.stop()
        assert time.perf_counter() - began < 8
        assert "Traceback" not in server.output


def test_a_missing_package_is_told(tmp_path: Path) -> None:
    blocked = "import sys; sys.modules['opentelemetry.sdk'] = None"
    arguments = ["perennial", "serve", "--port", "0", "--data", str(tmp_path / "data")]
    code = f"{blocked}; sys.argv = {arguments!r}; from perennial.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PERENNIAL_OTEL_ENDPOINT": "http://127.0.0.1:4318"},
    )
    assert ended.returncode == Code.FAILED
    assert "pip install 'perennial[otel]'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_nothing_of_it_is_loaded_unless_asked_for() -> None:
    code = "import sys, perennial.runtime; print([name for name in sys.modules if 'opentelemetry' in name])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert loaded == "[]\n"
