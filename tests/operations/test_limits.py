"""Limits: too fast, too many, too large, too full. Each refusal says when or how to go on."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.operations.servers import TEXT, OperatedServer, token_config

AS_EVENT_SOURCE = {"Accept": "text/event-stream", "Cache-Control": "no-cache"}
ROOMY = """
[quotas.roomy]
streams = 100
bytes = 100_000
"""


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedServer]:
    """Everything but rates is limited here."""
    config = (
        "max_connections = 64\nmax_live_readers = 2\nmax_url = 256\nmax_headers = 16384\n"
        "max_body = 2000\nbucket_max_streams = 3\nbucket_max_bytes = 1000\n"
    )
    directory = tmp_path_factory.mktemp("tight")
    with OperatedServer(directory, config + ROOMY) as running:
        yield running


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_an_identity_that_is_too_fast_is_told_when_to_come_back(tmp_path: Path) -> None:
    config = "rate_requests = 5\n" + token_config("one", ["read"]) + token_config("two", ["read"])
    with OperatedServer(tmp_path, config) as server:
        with server.client("secret-of-one") as one, server.client("secret-of-two") as two:
            answers = [one.get("/v1/stream/x") for _ in range(12)]
            refused = [answer for answer in answers if answer.status_code == 429]
            assert {answer.status_code for answer in answers} == {404, 429}
            assert answers[0].status_code == 404
            assert code(refused[0]) == (429, "TOO_MANY_REQUESTS")
            assert int(refused[0].headers["retry-after"]) >= 1
            assert two.get("/v1/stream/x").status_code == 404, "each has an allowance of its own"
            assert all(one.get("/readyz").status_code == 200 for _ in range(10))
            time.sleep(int(refused[-1].headers["retry-after"]))
            assert one.get("/v1/stream/x").status_code == 404
        with server.client() as stranger:
            answers = [stranger.get("/v1/stream/x") for _ in range(12)]
            assert {answer.status_code for answer in answers} == {401, 429}, "guessing is slow too"


def test_an_event_source_that_is_too_fast_is_sent_home_in_a_way_that_it_comes_back(tmp_path: Path) -> None:
    place = "/v1/stream/s?offset=-1&live=sse"
    with OperatedServer(tmp_path, "rate_requests = 2") as server, server.client() as client:
        client.put("/v1/stream/s", headers=TEXT).raise_for_status()
        while client.head("/v1/stream/s").status_code != 429:
            pass
        asked_at = time.monotonic()
        with client.stream("GET", place, headers=AS_EVENT_SOURCE) as sent_home:
            assert sent_home.status_code == 200
            assert sent_home.headers["content-type"] == "text/event-stream"
            assert sent_home.headers["access-control-allow-origin"] == "*"
            assert sent_home.read() == b": slow down: try again in 1 s\n\n"
        assert time.monotonic() - asked_at >= 1
        with client.stream("GET", place, headers=AS_EVENT_SOURCE) as follower:
            assert next(follower.iter_lines()) == "event: control", "it is welcome again"
        while client.head("/v1/stream/s").status_code != 429:
            pass
        poll = client.get(place.replace("sse", "long-poll"), headers=AS_EVENT_SOURCE)
        assert code(poll) == (429, "TOO_MANY_REQUESTS"), "pages that ask by themselves can read"


def test_bytes_are_paid_for_in_both_directions(tmp_path: Path) -> None:
    with OperatedServer(tmp_path, "rate_bytes = 50_000") as server, server.client() as client:
        client.put("/v1/stream/s", headers=TEXT).raise_for_status()
        assert client.post("/v1/stream/s", headers=TEXT, content=bytes(100_000)).status_code == 204
        refused = client.post("/v1/stream/s", headers=TEXT, content=b"x")
        assert code(refused) == (429, "TOO_MANY_REQUESTS")
        time.sleep(int(refused.headers["retry-after"]) + 0.1)
        read = client.get("/v1/stream/s", headers={"Accept-Encoding": "identity"})
        assert len(read.content) == 100_000
        assert client.head("/v1/stream/s").status_code == 429


def test_too_many_live_readers_are_turned_away(tight: OperatedServer) -> None:
    with tight.client() as client, ExitStack() as followers:
        client.put("/v1/stream/followed", headers=TEXT).raise_for_status()
        held = []
        for _ in range(2):
            stream = client.stream("GET", "/v1/stream/followed?offset=-1&live=sse")
            lines = followers.enter_context(stream).iter_lines()
            next(lines)
            held.append(lines)
        for mode in ("sse", "long-poll"):
            refused = client.get(f"/v1/stream/followed?offset=-1&live={mode}")
            assert code(refused) == (503, "TOO_MANY_READERS")
            assert int(refused.headers["retry-after"]) >= 1
        assert code(client.get("/v1/feed/default?live=long-poll")) == (503, "TOO_MANY_READERS")
        assert client.get("/v1/stream/followed").status_code == 200, "other reads go on"


def test_an_event_source_without_room_is_sent_home_in_a_way_that_it_comes_back(tight: OperatedServer) -> None:
    """To a 503 it never comes back. What a browser makes of this: tests/clients/test_browser.py."""
    place = "/v1/stream/crowded?offset=-1&live=sse"
    with tight.client() as client, ExitStack() as followers:
        client.put("/v1/stream/crowded", headers=TEXT).raise_for_status()
        held = [followers.enter_context(client.stream("GET", place)).iter_lines() for _ in range(2)]
        assert [next(lines) for lines in held] == ["event: control"] * 2
        before = refused_readers(client)
        asked_at = time.monotonic()
        with client.stream("GET", place, headers=AS_EVENT_SOURCE) as sent_home:
            assert sent_home.status_code == 200
            assert sent_home.headers["content-type"] == "text/event-stream"
            assert sent_home.headers["cache-control"] == "no-store"
            assert refused_readers(client) == before + 1, "it is counted as what it is"
            text = sent_home.read().decode()
        assert text == ": as many live reads as this server takes are open\n\n", (
            "no event, so nothing to believe"
        )
        assert time.monotonic() - asked_at >= 1, "a page that asks again at once is slowed down"
        for only in AS_EVENT_SOURCE:
            refused = client.get(place, headers={only: AS_EVENT_SOURCE[only]})
            assert code(refused) == (503, "TOO_MANY_READERS"), "clients that know what it means are told"
        poll = client.get(place.replace("sse", "long-poll"), headers=AS_EVENT_SOURCE)
        assert code(poll) == (503, "TOO_MANY_READERS")


def test_a_stopping_server_does_not_wait_for_those_it_sent_home(tmp_path: Path) -> None:
    with OperatedServer(tmp_path, "max_live_readers = 1") as server, server.client() as client:
        client.put("/v1/stream/s", headers=TEXT).raise_for_status()
        place = "/v1/stream/s?offset=-1&live=sse"
        with client.stream("GET", place) as follower, ExitStack() as turned_away:
            held = follower.iter_lines()
            assert next(held) == "event: control"
            # Of so many, some would have to wait for more than four seconds.
            streams = [client.stream("GET", place, headers=AS_EVENT_SOURCE) for _ in range(20)]
            answers = [turned_away.enter_context(stream) for stream in streams]
            asked_at = time.monotonic()
            server.stop()
            for answer in answers:
                assert answer.read().startswith(b": as many")
            assert time.monotonic() - asked_at < 3


def refused_readers(client: httpx.Client) -> float:
    [line] = [
        line
        for line in client.get("/metrics").text.splitlines()
        if line.startswith("perennial_refused_total") and "live_readers" in line
    ]
    return float(line.split()[-1])


def test_too_many_connections_are_turned_away(tight: OperatedServer) -> None:
    with ExitStack() as stack:
        address = "127.0.0.1", tight.port
        connections = [stack.enter_context(socket.create_connection(address, 5)) for _ in range(70)]
        extra = stack.enter_context(socket.create_connection(address, 5))
        extra.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = extra.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\nretry-after: ")
        assert b"TOO_MANY_CONNECTIONS" in answer
        connections[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert connections[0].makefile("rb").read().endswith(b"ok\n"), "those who are in are served"
    with tight.client(transport=httpx.HTTPTransport(retries=3)) as client:
        deadline = time.monotonic() + 10
        while client.get("/healthz").status_code == 503 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert client.get("/healthz").status_code == 200, "and there is room again"
        assert "perennial_refused_total" in client.get("/metrics").text


def test_sizes_are_limited(tight: OperatedServer) -> None:
    with tight.client() as client:
        assert client.get("/v1/stream/" + "x" * 300).status_code == 414
        assert client.get("/", headers={f"x-{n}": "y" * 1000 for n in range(20)}).status_code == 431
        assert code(client.post("/v1/stream/x", content=bytes(2001))) == (413, "PAYLOAD_TOO_LARGE")


def test_a_bucket_has_room_for_so_many_streams(tight: OperatedServer) -> None:
    with tight.client() as client:
        client.put("/ds/crowded").raise_for_status()
        for name in "abc":
            client.put(f"/ds/crowded/{name}", headers=TEXT).raise_for_status()
        refused = client.put("/ds/crowded/d", headers=TEXT)
        assert code(refused) == (507, "QUOTA_EXCEEDED")
        assert "3 streams" in refused.json()["error"]["message"]
        assert client.put("/ds/crowded/a", headers=TEXT).status_code == 200, "what is there may be asked for"
        assert client.delete("/ds/crowded/b").status_code == 204
        assert client.put("/ds/crowded/d", headers=TEXT).status_code == 201


def test_a_bucket_has_room_for_so_many_bytes(tight: OperatedServer) -> None:
    with tight.client() as client:
        client.put("/ds/bytes").raise_for_status()
        client.put("/ds/bytes/s", headers=TEXT, content=bytes(600)).raise_for_status()
        producer = {**TEXT, "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
        assert client.post("/ds/bytes/s", headers=producer, content=bytes(300)).status_code == 200
        refused = client.post("/ds/bytes/s", headers=TEXT, content=bytes(101))
        assert code(refused) == (507, "QUOTA_EXCEEDED")
        assert "900 bytes" in refused.json()["error"]["message"]
        again = client.post("/ds/bytes/s", headers=producer, content=bytes(300))
        assert again.status_code == 204, "a repeat stores nothing, so it is not refused"
        assert code(client.put("/ds/bytes/t", headers=TEXT, content=bytes(101))) == (507, "QUOTA_EXCEEDED")
        assert client.post("/ds/bytes/s", headers=TEXT, content=bytes(100)).status_code == 204
        # A snapshot takes the place of what it stands for.
        snapshot = client.put("/ds/bytes/s/snapshot/0000000000000900", headers=TEXT, content=bytes(50))
        assert snapshot.status_code == 204
        assert client.post("/ds/bytes/s", headers=TEXT, content=bytes(800)).status_code == 204
        too_large = client.put("/ds/bytes/s/snapshot/0000000000000900", headers=TEXT, content=bytes(500))
        assert code(too_large) == (507, "QUOTA_EXCEEDED")
        assert client.delete("/ds/bytes/s").status_code == 204
        assert client.put("/ds/bytes/u", headers=TEXT, content=bytes(1000)).status_code == 201


def test_a_deleted_source_counts_until_its_last_fork_is_gone(tight: OperatedServer) -> None:
    with tight.client() as client:
        client.put("/ds/forked").raise_for_status()
        client.put("/ds/forked/source", headers=TEXT, content=bytes(700)).raise_for_status()
        fork = client.put("/ds/forked/fork", headers={"Stream-Forked-From": "/ds/forked/source"})
        assert fork.status_code == 201, "what is inherited is not counted twice"
        assert client.post("/ds/forked/fork", headers=TEXT, content=bytes(200)).status_code == 204
        assert client.delete("/ds/forked/source").status_code == 204
        assert client.post("/ds/forked/fork", headers=TEXT, content=bytes(200)).status_code == 507
        assert client.delete("/ds/forked/fork").status_code == 204
        assert client.put("/ds/forked/new", headers=TEXT, content=bytes(1000)).status_code == 201


def test_what_is_kept_for_forks_counts_until_the_last_one_is_gone(tight: OperatedServer) -> None:
    with tight.client() as client:
        client.put("/ds/kept").raise_for_status()
        client.put("/ds/kept/s", headers=TEXT, content=bytes(100)).raise_for_status()
        client.post("/ds/kept/s", headers=TEXT, content=bytes(200)).raise_for_status()

        def publish(offset: int, size: int) -> int:
            path = f"/ds/kept/s/snapshot/{offset:016d}"
            return client.put(path, headers=TEXT, content=bytes(size)).status_code

        assert publish(100, 350) == 204
        client.put("/ds/kept/fork", headers={"Stream-Forked-From": "/ds/kept/s"}).raise_for_status()
        # 200 bytes of data and 350 of a snapshot remain for the fork, whatever is published now.
        assert publish(300, 451) == 507
        assert publish(300, 450) == 204
        assert client.post("/ds/kept/s", headers=TEXT, content=b"x").status_code == 507
        assert client.delete("/ds/kept/fork").status_code == 204
        assert client.post("/ds/kept/s", headers=TEXT, content=bytes(550)).status_code == 204
        assert client.post("/ds/kept/s", headers=TEXT, content=b"x").status_code == 507


def test_counts_survive_a_restart(tmp_path: Path) -> None:
    with OperatedServer(tmp_path, "bucket_max_bytes = 1000") as server:
        with server.client() as client:
            client.put("/v1/stream/s", headers=TEXT, content=bytes(900)).raise_for_status()
        server.restart()
        with server.client() as client:
            assert client.post("/v1/stream/s", headers=TEXT, content=bytes(200)).status_code == 507
            wish = {"Upstream-URL": "http://127.0.0.1:1/", "Upstream-Method": "GET"}
            assert client.post("/v1/proxy", headers=wish).status_code == 403, "the proxy has its own bucket"


def test_a_quota_of_its_own_takes_the_place_of_the_general_one(tight: OperatedServer) -> None:
    with tight.client() as client:
        client.put("/ds/roomy").raise_for_status()
        for number in range(5):
            stream = f"/ds/roomy/{number}"
            assert client.put(stream, headers=TEXT, content=bytes(1500)).status_code == 201


def test_by_default_nobody_is_slowed_down(shared_server: OperatedServer) -> None:
    with httpx.Client(base_url=shared_server.url) as client:
        client.put("/v1/stream/unlimited", headers=TEXT).raise_for_status()
        answers = [client.post("/v1/stream/unlimited", headers=TEXT, content=b"x") for _ in range(500)]
        assert {answer.status_code for answer in answers} == {204}
