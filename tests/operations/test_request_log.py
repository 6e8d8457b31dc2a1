"""One line per request, ids, what is left out of them, and whose address counts."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.operations.servers import SERVICE, TEXT, OperatedServer, token_config


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedServer]:
    config = 'access_log = true\ntrusted_proxies = ["127.0.0.0/8", "10.0.0.0/8"]\n'
    directory = tmp_path_factory.mktemp("log")
    config += token_config("alice", ["read", "write"])
    with OperatedServer(directory, config, {"PERENNIAL_AUTH_TOKENS": SERVICE}) as running:
        yield running


@pytest.fixture
def client(server: OperatedServer) -> Iterator[httpx.Client]:
    with server.client("secret-of-alice") as alice:
        yield alice


def logged(server: OperatedServer, request_id: str) -> dict[str, Any]:
    def lines() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in server.log if line.startswith('{"time":')]
        return [line for line in found if line["id"] == request_id]

    server.wait_for(lambda: bool(lines()))
    assert len(lines()) == 1
    return lines()[0]


def test_a_line_tells_who_asked_for_what_and_how_it_went(
    server: OperatedServer, client: httpx.Client
) -> None:
    client.put("/v1/stream/s", headers=TEXT).raise_for_status()
    client.post("/v1/stream/s", headers={**TEXT, "X-Request-Id": "write-1"}, content=b"12345")
    client.get("/v1/stream/s?offset=-1", headers={"X-Request-Id": "read-1"})
    written, read = logged(server, "write-1"), logged(server, "read-1")
    assert (written["method"], written["path"], written["status"]) == ("POST", "/v1/stream/s", 204)
    assert (written["who"], written["client"]) == ("token:alice", "127.0.0.1")
    assert (written["bytes_in"], written["bytes_out"]) == (5, 0)
    assert (read["query"], read["bytes_out"], read["broken_off"]) == ("offset=-1", 5, False)
    assert 0 < written["ms"] < 10_000
    assert written["time"].endswith("Z")


def test_a_refusal_is_logged_too(server: OperatedServer, client: httpx.Client) -> None:
    client.get("/v1/stream/none", headers={"X-Request-Id": "missing-1"})
    assert logged(server, "missing-1")["status"] == 404
    client.get("/v1/stream/none", headers={"X-Request-Id": "stranger-1", "Authorization": "Bearer no"})
    line = logged(server, "stranger-1")
    assert (line["status"], line["who"]) == (401, "address:127.0.0.1")


def test_an_event_stream_is_logged_when_it_ends(server: OperatedServer, client: httpx.Client) -> None:
    client.put("/v1/stream/followed", headers=TEXT, content=b"data").raise_for_status()
    headers = {"X-Request-Id": "sse-1"}
    with client.stream("GET", "/v1/stream/followed?offset=-1&live=sse", headers=headers) as events:
        lines = events.iter_lines()
        next(lines)
        assert events.headers["x-request-id"] == "sse-1"
    line = logged(server, "sse-1")
    assert (line["status"], line["broken_off"]) == (200, True)
    assert line["bytes_out"] > 4


def test_ids_are_echoed_if_sane_and_made_up_if_not(client: httpx.Client) -> None:
    assert client.get("/healthz", headers={"X-Request-Id": "abc-123"}).headers["x-request-id"] == "abc-123"
    for bad in ("with spaces", "x" * 200, 'quote"', "<b>"):
        answer = client.get("/healthz", headers={"X-Request-Id": bad})
        assert answer.headers["x-request-id"] != bad
        assert len(answer.headers["x-request-id"]) == 16
    assert len(client.get("/healthz").headers["x-request-id"]) == 16


def test_secrets_do_not_reach_the_log(server: OperatedServer, client: httpx.Client) -> None:
    query = "expires=99&signature=s3cr3t-signature&offset=-1&acc%65ss_token=s3cr3t-too"
    client.get(f"/v1/proxy/some-stream?{query}", headers={"X-Request-Id": "signed-1"})
    line = logged(server, "signed-1")
    assert line["query"] == "expires=99&signature=[redacted]&offset=-1&access_token=[redacted]"
    assert "s3cr3t" not in server.output
    assert "secret-of-alice" not in server.output
    assert SERVICE not in server.output


@pytest.mark.parametrize(
    ("headers", "address"),
    [
        ({"X-Forwarded-For": "203.0.113.7"}, "203.0.113.7"),
        ({"X-Forwarded-For": "198.51.100.1, 203.0.113.7, 10.1.2.3"}, "203.0.113.7"),
        ({"X-Forwarded-For": "203.0.113.7:4711"}, "203.0.113.7"),
        ({"X-Forwarded-For": "not an address"}, "127.0.0.1"),
        ({"Forwarded": 'for=198.51.100.1, for="[2001:db8::7]:4711";proto=https'}, "2001:db8::7"),
        ({"Forwarded": "for=unknown", "X-Forwarded-For": "203.0.113.7"}, "127.0.0.1"),
    ],
)
def test_a_trusted_proxy_is_believed_as_far_as_the_first_stranger(
    server: OperatedServer, client: httpx.Client, headers: dict[str, str], address: str
) -> None:
    request_id = f"forwarded-{abs(hash(str(headers)))}"
    client.get("/healthz", headers={**headers, "X-Request-Id": request_id})
    assert logged(server, request_id)["client"] == address


def test_the_forwarded_scheme_is_used_in_links(client: httpx.Client) -> None:
    created = client.put("/v1/stream/linked", headers={**TEXT, "X-Forwarded-Proto": "https"})
    assert created.headers["location"].startswith("https://")


def test_others_are_not_believed(shared_server: OperatedServer) -> None:
    with httpx.Client(base_url=shared_server.url) as client:
        headers = {**TEXT, "X-Forwarded-Proto": "https", "Forwarded": "proto=https"}
        created = client.put("/v1/stream/not-believed", headers=headers)
        assert created.headers["location"].startswith("http://")
        assert client.get("/healthz", headers={"X-Request-Id": "echo"}).headers["x-request-id"] == "echo"
        assert "x-request-id" not in client.get("/healthz").headers
