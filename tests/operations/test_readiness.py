"""Is it alive, should it get traffic, what does it count?"""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.gate import GatedServer
from tests.operations.servers import AS_SERVICE, SERVICE, TEXT, OperatedServer, token_config


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedServer]:
    with OperatedServer(tmp_path_factory.mktemp("readiness")) as running:
        yield running


def scrape(client: httpx.Client) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = client.get("/metrics").raise_for_status().text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def labels(**given: str) -> frozenset[tuple[str, str]]:
    return frozenset(given.items())


def test_a_running_server_is_alive_and_ready(server: OperatedServer) -> None:
    with server.client() as client:
        assert client.get("/healthz").text == "ok\n"
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()) == (200, {"ready": True, "reasons": []})
        assert ready.headers["cache-control"] == "no-store"
        assert client.post("/readyz").status_code == 405


def test_a_failed_commit_makes_the_server_unready_and_it_says_so(tmp_path: Path) -> None:
    with GatedServer(tmp_path / "data") as server, httpx.Client(base_url=server.url) as client:
        assert client.put("/v1/stream/s", headers=TEXT).status_code == 201
        server.fail()
        assert client.post("/v1/stream/s", headers=TEXT, content=b"x").status_code == 503
        ready = client.get("/readyz")
        assert ready.status_code == 503
        assert not ready.json()["ready"]
        assert ready.json()["reasons"]
        assert "retry-after" in ready.headers
        assert str(tmp_path) not in ready.text, "anyone may ask, so paths stay in the log"
        assert client.get("/healthz").status_code == 200, "alive all the same: it still serves reads"
        assert scrape(client)["perennial_ready", labels()] == 0
        server.release()
        server.kill()


def test_requests_are_counted_by_surface_method_and_status(server: OperatedServer) -> None:
    with server.client() as client:
        before = scrape(client)
        client.put("/v1/stream/counted", headers=TEXT)
        for _ in range(3):
            client.post("/v1/stream/counted", headers=TEXT, content=b"x")
        client.get("/v1/stream/not-there")
        client.put("/ds/counted")
        client.put("/ds/counted/one", headers=TEXT)
        client.get("/ds/counted/one/snapshot")
        client.get("/v1/feed/counted")
        client.get("/nowhere")
        client.request("BREW", "/v1/stream/counted")
        after = scrape(client)

    def grown(surface: str, method: str, status: int) -> float:
        key = "perennial_requests_total", labels(surface=surface, method=method, status=str(status))
        return after.get(key, 0) - before.get(key, 0)

    assert grown("stream", "POST", 204) == 3
    assert grown("stream", "PUT", 201) == 2
    assert grown("stream", "GET", 404) == 1
    assert grown("bucket", "PUT", 201) == 1
    assert grown("snapshot", "GET", 404) == 1
    assert grown("feed", "GET", 200) == 1
    assert grown("other", "GET", 404) == 1


def test_commits_are_measured(server: OperatedServer) -> None:
    with server.client() as client:
        before = scrape(client)
        client.put("/v1/stream/measured", headers=TEXT)
        client.post("/v1/stream/measured", headers=TEXT, content=b"x" * 1000)
        after = scrape(client)

    def grown(name: str) -> float:
        return after[name, labels()] - before[name, labels()]

    assert grown("perennial_commit_bytes_sum") == 1000
    assert grown("perennial_commit_records_sum") == 1
    assert grown("perennial_commit_seconds_count") == 2
    assert 0 < grown("perennial_commit_seconds_sum") <= grown("perennial_visible_lag_seconds_sum")
    assert after["perennial_commit_seconds_bucket", labels(le="+Inf")] >= 2


def test_the_state_of_the_server_is_exported(server: OperatedServer) -> None:
    with server.client() as client:
        client.put("/v1/stream/followed", headers=TEXT)
        with client.stream("GET", "/v1/stream/followed?offset=-1&live=sse") as follower:
            lines = follower.iter_lines()  # closed when nobody holds it
            next(lines)
            found = scrape(client)
    assert found["perennial_live_readers", labels(mode="sse")] == 1
    assert found["perennial_connections", labels()] >= 2
    assert found["perennial_ready", labels()] == 1
    assert found["perennial_unsettled_seconds", labels()] >= 0
    assert found["perennial_store_bytes", labels(part="wal")] > 0
    assert found["perennial_store_bytes", labels(part="memory")] > 0
    assert found["perennial_event_loop_lag_seconds_count", labels()] >= 0
    assert found["process_resident_memory_bytes", labels()] > 0


def test_metrics_need_a_token_of_their_scope(tmp_path: Path) -> None:
    config = token_config("scraper", ["metrics"]) + token_config("reader", ["read"])
    with OperatedServer(tmp_path, config, {"PERENNIAL_AUTH_TOKENS": SERVICE}) as server:
        with server.client() as anyone:
            assert anyone.get("/metrics").status_code == 401
            assert anyone.get("/readyz").status_code == 200
            assert anyone.get("/metrics", headers=AS_SERVICE).status_code == 200
        with server.client("secret-of-reader") as reader, server.client("secret-of-scraper") as scraper:
            assert reader.get("/metrics").status_code == 403
            assert scraper.get("/metrics").status_code == 200
            assert scraper.get("/v1/stream/any").status_code == 403
