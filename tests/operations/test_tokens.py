"""Service tokens and scoped tokens: who gets in, how far, and what the refused can find out."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.operations.servers import AS_SERVICE, SERVICE, TEXT, OperatedServer, token_config

CONFIG = (
    token_config("reader", ["read"])
    + token_config("writer", ["write"])
    + token_config("agents", ["read", "write"], buckets=["agents"])
    + token_config("alice", ["read", "write"], prefix="alice-")
    + token_config("admin", ["admin"])
    + token_config("proxied", ["read", "write"], buckets=["proxy"])
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedServer]:
    directory = tmp_path_factory.mktemp("tokens")
    with OperatedServer(directory, CONFIG, {"PERENNIAL_AUTH_TOKENS": f"{SERVICE}, another"}) as running:
        with running.client(SERVICE) as service:
            service.put("/v1/stream/there", headers=TEXT, content=b"secret data").raise_for_status()
            service.put("/ds/agents").raise_for_status()
            for name in ("alice-1", "alice-2", "bob-1"):
                service.put(f"/ds/agents/{name}", headers=TEXT, content=name.encode()).raise_for_status()
            service.put("/v1/stream/alice-own", headers=TEXT, content=b"mine").raise_for_status()
        yield running


def statuses(client: httpx.Client, path: str) -> dict[str, int]:
    return {
        method: client.request(method, path, headers=TEXT if method in ("PUT", "POST") else {}).status_code
        for method in ("GET", "HEAD", "PUT", "POST", "DELETE")
    }


def test_a_service_token_may_do_everything(server: OperatedServer) -> None:
    for token in (SERVICE, "another"):
        with server.client(token) as client:
            assert client.get("/v1/stream/there").text == "secret data"


@pytest.mark.parametrize(
    "authorization",
    [None, "Bearer wrong", "Bearer", "Basic c2VydmljZQ==", SERVICE, f"Bearer {SERVICE}x", "Bearer a.b.c"],
)
def test_without_a_known_token_nothing_is_told(server: OperatedServer, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    with httpx.Client(base_url=server.url, headers=headers) as client:
        there, missing = client.get("/v1/stream/there"), client.get("/v1/stream/missing")
        assert there.status_code == 401
        assert there.headers["www-authenticate"] == 'Bearer realm="perennial"'
        assert there.content == missing.content
        assert ("this one is wrong" in there.text) == (authorization is not None)
        assert set(statuses(client, "/v1/stream/there").values()) == {401}
        for path in ("/ds/agents", "/ds/agents/streams", "/v1/feed/agents", "/", "/nowhere"):
            assert client.get(path).status_code == 401
        assert client.options("/v1/stream/there").status_code == 204, "browsers ask without credentials"


def test_a_large_body_of_a_stranger_is_not_kept(server: OperatedServer) -> None:
    with server.client() as client:
        assert client.post("/v1/stream/there", headers=TEXT, content=bytes(20 << 20)).status_code == 401


def test_a_scope_is_a_kind_of_access(server: OperatedServer) -> None:
    with server.client("secret-of-reader") as reader:
        found = statuses(reader, "/v1/stream/there")
        assert found == {"GET": 200, "HEAD": 200, "PUT": 403, "POST": 403, "DELETE": 403}
        assert reader.get("/ds/agents").status_code == 200
        assert reader.put("/ds/some-bucket").status_code == 403
    with server.client("secret-of-writer") as writer:
        assert writer.put("/v1/stream/written", headers=TEXT).status_code == 201
        assert writer.post("/v1/stream/written", headers=TEXT, content=b"x").status_code == 204
        assert writer.get("/v1/stream/written").status_code == 403
        assert writer.delete("/v1/stream/written").status_code == 204
    with server.client("secret-of-admin") as admin:
        assert admin.put("/ds/some-bucket").status_code == 201
        assert admin.delete("/ds/some-bucket").status_code == 204
        assert admin.get("/v1/stream/there").status_code == 403
        assert admin.get("/ds/agents").status_code == 403


def test_a_bucket_limits_a_token(server: OperatedServer) -> None:
    with server.client("secret-of-agents") as client:
        assert client.get("/ds/agents/bob-1").text == "bob-1"
        assert client.get("/ds/agents/streams").json()["stream_count"] == 3
        assert client.get("/v1/stream/there").status_code == 403
        assert client.get("/ds/default/streams").status_code == 403


def test_the_refused_do_not_learn_what_exists(server: OperatedServer) -> None:
    """403 comes before anything is looked up: the same answer for what is there and what is not."""
    with server.client("secret-of-agents") as client:
        pairs = [
            ("/v1/stream/there", "/v1/stream/missing"),
            ("/ds/default", "/ds/no-such-bucket"),
            ("/ds/default/there/snapshot", "/ds/no-such-bucket/x/snapshot"),
            ("/ds/default/there/bootstrap", "/ds/default/missing/bootstrap"),
            ("/v1/feed/default", "/v1/feed/no-such-bucket"),
        ]
        for there, missing in pairs:
            answers = client.get(there), client.get(missing)
            assert [answer.status_code for answer in answers] == [403, 403], there
            assert answers[0].content == answers[1].content
        bodies = [client.post(f"/v1/stream/{name}", headers=TEXT, content=b"x") for name in ("there", "no")]
        assert [(body.status_code, body.content) for body in bodies] == [(403, bodies[0].content)] * 2


def test_a_prefix_limits_a_token(server: OperatedServer) -> None:
    with server.client("secret-of-alice") as alice:
        assert alice.get("/v1/stream/alice-own").text == "mine"
        assert alice.get("/ds/agents/alice-1").text == "alice-1"
        assert alice.get("/ds/agents/bob-1").status_code == 403
        assert alice.put("/ds/agents/alice-3", headers=TEXT).status_code == 201
        assert alice.put("/ds/agents/bob-3", headers=TEXT).status_code == 403
        assert alice.get("/ds/agents").status_code == 403, "it would count everybody's streams"
        snapshot = alice.put("/ds/agents/alice-1/snapshot/0000000000000007", headers=TEXT, content=b"s")
        assert snapshot.status_code == 204
        refused = alice.put("/ds/agents/bob-1/snapshot/0000000000000005", headers=TEXT, content=b"s")
        assert refused.status_code == 403
        assert alice.delete("/ds/agents/alice-3").status_code == 204


def test_a_listing_shows_no_more_than_the_prefix(server: OperatedServer) -> None:
    with server.client("secret-of-alice") as alice:
        listed = alice.get("/ds/agents/streams").json()
        assert [stream["stream_id"] for stream in listed["streams"]] == ["alice-1", "alice-2"]
        narrower = alice.get("/ds/agents/streams?prefix=alice-2").json()
        assert [stream["stream_id"] for stream in narrower["streams"]] == ["alice-2"]
        assert alice.get("/ds/agents/streams?prefix=bob").status_code == 403
        after = alice.get("/ds/agents/streams?after=aaa&limit=1").json()
        assert [stream["stream_id"] for stream in after["streams"]] == ["alice-1"]


def test_a_feed_needs_the_whole_bucket_or_a_filter_within_the_prefix(server: OperatedServer) -> None:
    with server.client("secret-of-alice") as alice:
        assert alice.get("/v1/feed/agents").status_code == 403
        assert alice.get("/v1/feed/agents?prefix=a").status_code == 403
        assert alice.head("/v1/feed/agents").status_code == 403
        assert alice.get("/v1/feed/agents?prefix=alice-").status_code == 200
        assert alice.head("/v1/feed/agents?prefix=alice-").status_code == 200
        assert b"bob-1" not in alice.get("/v1/feed/agents?stream=alice-1").content
        assert alice.get("/v1/feed/agents?stream=bob-1").status_code == 403
        assert alice.get("/v1/feed/agents?stream=bob-1&prefix=alice-").status_code == 403
    with server.client("secret-of-agents") as agents:
        assert agents.get("/v1/feed/agents").status_code == 200


def test_a_fork_needs_read_access_to_its_source(server: OperatedServer) -> None:
    def fork(client: httpx.Client, source: str, name: str) -> int:
        return client.put(f"/v1/stream/{name}", headers={"Stream-Forked-From": source}).status_code

    with server.client("secret-of-alice") as alice, server.client("secret-of-writer") as writer:
        assert fork(alice, "/v1/stream/there", "alice-theft") == 403
        assert fork(alice, "/v1/stream/missing", "alice-theft") == 403
        assert fork(alice, "/v1/stream/alice-own", "alice-fork") == 201
        assert fork(writer, "/v1/stream/there", "alice-theft") == 403


def test_proxied_streams_are_for_those_whose_token_names_their_bucket(server: OperatedServer) -> None:
    wish = {"Upstream-URL": "http://127.0.0.1:1/", "Upstream-Method": "GET"}
    with server.client() as anyone:
        assert anyone.post("/v1/proxy", headers=wish).status_code == 401
    for name in ("reader", "writer", "agents", "alice"):
        with server.client(f"secret-of-{name}") as client:
            assert client.post("/v1/proxy", headers=wish).status_code == 403, name
            assert client.head("/v1/proxy/x").status_code == 403
            assert client.get("/v1/proxy/x").status_code == 401, "a signed URL would still do"
            assert client.get("/ds/proxy/streams").status_code == 403
            assert client.get("/v1/feed/proxy").status_code == 403
    with server.client("secret-of-proxied") as client:
        refused = client.post("/v1/proxy", headers=wish)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "UPSTREAM_NOT_ALLOWED")
        assert client.head("/v1/proxy/x").status_code == 404
        assert client.get("/ds/proxy/streams").status_code == 200


def test_answers_are_private_when_access_is_controlled(server: OperatedServer) -> None:
    with server.client(SERVICE) as client:
        assert client.get("/v1/stream/there").headers["cache-control"].startswith("private, ")
        polled = client.get("/v1/stream/there?offset=-1&live=long-poll")
        assert polled.headers["cache-control"].startswith("private, ")


def test_without_tokens_loopback_is_open_and_other_addresses_are_refused(tmp_path: Path) -> None:
    with OperatedServer(tmp_path) as server, server.client() as client:
        client.put("/v1/stream/open", headers=TEXT, content=b"x").raise_for_status()
        assert client.get("/v1/stream/open").headers["cache-control"].startswith("public, ")

    class Elsewhere(OperatedServer):
        def command(self) -> list[str]:
            return [*super().command(), "--host", "0.0.0.0"]

    with pytest.raises(RuntimeError, match="without tokens: anyone could write"):
        Elsewhere(tmp_path).start()


def test_a_revoked_token_is_out_after_a_reload_and_the_last_one_does_not_open_the_doors(
    tmp_path: Path,
) -> None:
    with OperatedServer(tmp_path, token_config("one", ["read"])) as server:
        with server.client("secret-of-one") as client:
            assert client.get("/v1/stream/x").status_code == 404
            server.configure(token_config("two", ["read"]))
            server.hang_up("reloaded")
            assert client.get("/v1/stream/x").status_code == 401
        with server.client("secret-of-two") as client:
            assert client.get("/v1/stream/x").status_code == 404
            server.configure("tokens = 7")
            server.hang_up("reload refused")
            assert client.get("/v1/stream/x").status_code == 404, "a bad file changes nothing"
            server.configure("")
            server.hang_up("reloaded")
            assert client.get("/v1/stream/x").status_code == 401
        assert "secret-of" not in server.output


def test_tokens_are_never_printed(server: OperatedServer) -> None:
    with server.client() as client:
        client.get("/v1/stream/there", headers=AS_SERVICE)
    assert SERVICE not in server.output
