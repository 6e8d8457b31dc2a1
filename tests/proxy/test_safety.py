"""What an upstream may be, over a real server (sections 7, 13)."""

from pathlib import Path

import pytest

from perennial.protocol.frames import FrameType
from tests.harness.server import ServerProcess
from tests.proxy.harness import SECRET, SETTINGS, TOKEN, Rig, error_code, make_server, stream_id
from tests.upstream import HANG, Step, Upstream


def test_only_allowed_urls_are_asked(rig: Rig) -> None:
    """4.2, 7, 13.1: all upstream URLs MUST be validated against the allowlist before any request is made."""
    outside = rig.script([b"x"], path="/outside")
    port = rig.upstream.port
    tricks = [
        outside,
        f"http://127.0.0.1:{port}/allowed/../outside",
        f"http://127.0.0.1:{port}/allowed/%2e%2e/outside",
        f"http://127.0.0.1:{port}/allowed/..%2foutside",
        f"http://127.0.0.1:{port}/allowed/%252e%252e%252foutside",
        f"http://127.0.0.1:{port}/allowed/..\\outside",
        f"http://user@127.0.0.1:{port}/allowed/x",
        f"http://127.0.0.1:{port}@evil.example/allowed/x",
        f"http://2130706433:{port}/allowed/x",
        f"http://0x7f000001:{port}/allowed/x",
        f"http://127.1:{port}/allowed/x",
        f"http://0177.0.0.1:{port}/allowed/x",
        f"http://[::ffff:127.0.0.1]:{port}/allowed/x",
        f"https://127.0.0.1:{port}/allowed/x",
    ]
    for url in tricks:
        answer = rig.post(url)
        assert (answer.status_code, error_code(answer)) == (403, "UPSTREAM_NOT_ALLOWED"), url
    assert rig.upstream.requests("/outside") == []


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_redirects_are_never_followed(rig: Rig, status: int) -> None:
    """4.2, 7.1: the proxy MUST NOT follow redirects, also not to an allowed URL; 400 REDIRECT_NOT_ALLOWED."""
    path = f"/allowed/target-{status}"
    target = rig.script([b"never"], path=path)
    answer = rig.post(rig.script([], status=status, headers=[("Location", target)]), method="GET")
    assert (answer.status_code, error_code(answer)) == (400, "REDIRECT_NOT_ALLOWED")
    assert rig.upstream.requests(path) == []


def test_without_an_allowlist_nothing_is_allowed(upstream: Upstream, tmp_path: Path) -> None:
    """7: if no allowlist is configured or the allowlist is empty, all upstream URLs MUST be rejected."""
    with make_server(tmp_path / "data", PERENNIAL_PROXY_ALLOW="") as server, Rig(server, upstream) as rig:
        answer = rig.post(rig.script([b"x"]))
        assert (answer.status_code, error_code(answer)) == (403, "UPSTREAM_NOT_ALLOWED")


def test_private_addresses_are_refused_unless_allowed(upstream: Upstream, tmp_path: Path) -> None:
    """13.1: SHOULD consider blocking private ranges; checked on the address, whatever name leads there."""
    with (
        make_server(tmp_path / "data", PERENNIAL_PROXY_ALLOW_PRIVATE="false") as server,
        Rig(server, upstream) as rig,
    ):
        path = "/allowed/private"
        rig.script([b"x"], path=path)
        for host in ("127.0.0.1", "localhost"):
            answer = rig.post(f"http://{host}:{upstream.port}{path}")
            assert (answer.status_code, error_code(answer)) == (403, "UPSTREAM_NOT_ALLOWED")
        assert (
            rig.connect("private", upstream_url=f"http://localhost:{upstream.port}{path}").status_code == 403
        )
        assert upstream.requests(path) == []


def test_upstreams_per_caller_are_limited(hasty: Rig) -> None:
    """13.1: SHOULD consider limiting the number of concurrent upstream connections per client."""
    tick: list[Step] = [0.1, b"."]
    urls = [hasty.create(hasty.script([b".", *tick * 20])).headers["location"] for _ in range(2)]
    answer = hasty.post(hasty.script([b"x"]))
    assert (answer.status_code, error_code(answer)) == (429, "TOO_MANY_UPSTREAMS")
    assert answer.headers["retry-after"]
    hasty.abort(urls[0])
    assert hasty.post(hasty.script([b"x"])).status_code == 201
    hasty.abort(urls[1])


def test_service_authentication_guards_every_write(rig: Rig) -> None:
    """10.1: required for POST (create, append, connect), HEAD and DELETE; MISSING_SECRET, INVALID_SECRET."""
    url = rig.create(rig.script([b"x"])).headers["location"]
    for token, code in ((None, "MISSING_SECRET"), ("wrong", "INVALID_SECRET")):
        for answer in (
            rig.post(rig.script(), token=token),
            rig.append(url, rig.script(), token=token),
            rig.connect("nobody", token=token),
            rig.delete(stream_id(url), token=token),
        ):
            assert (answer.status_code, error_code(answer)) == (401, code)
        assert rig.look(stream_id(url), token=token).status_code == 401


def test_an_open_server_trusts_whoever_connects_but_not_its_readers(
    upstream: Upstream, tmp_path: Path
) -> None:
    """10.1: without tokens, service authentication passes; a stream still wants its URL to be read."""
    with make_server(tmp_path / "data", PERENNIAL_AUTH_TOKENS="") as server, Rig(server, upstream) as rig:
        answer = rig.post(rig.script([b"x"]), token=None)
        assert answer.status_code == 201
        url = answer.headers["location"]
        assert rig.ended(url).body == b"x"
        bare = rig.http.get(f"{rig.url}/{stream_id(url)}")
        assert (bare.status_code, error_code(bare)) == (401, "MISSING_SIGNATURE")
        assert rig.look(stream_id(url), token=None).status_code == 200
        assert rig.delete(stream_id(url), token=None).status_code == 204


def test_secrets_rotate_without_breaking_urls(upstream: Upstream, tmp_path: Path) -> None:
    """8.2, 13.2: several secrets may verify, the first signs; a secret that is gone verifies no more."""
    server = make_server(tmp_path / "data")
    with server, Rig(server, upstream) as rig:
        old = rig.create(rig.script([b"x"])).headers["location"]
        server.env["PERENNIAL_PROXY_SECRET"] = f"a-new-and-better-secret,{SECRET}"
        server.restart()
        assert rig.read(old).status_code == 200
        new = rig.append(old, rig.script([b"y"])).headers["location"]
        server.env["PERENNIAL_PROXY_SECRET"] = "a-new-and-better-secret"
        server.restart()
        assert rig.read(new).status_code == 200
        assert error_code(rig.read(old)) == "SIGNATURE_INVALID"


def test_a_secret_of_its_own_survives_restarts(upstream: Upstream, tmp_path: Path) -> None:
    """13.2: sufficient entropy in the signing secret: without one configured, a random one is kept."""
    server = make_server(tmp_path / "data", PERENNIAL_PROXY_SECRET="")
    with server, Rig(server, upstream) as rig:
        url = rig.create(rig.script([b"x"])).headers["location"]
        server.restart()
        assert rig.read(url).status_code == 200
    path = tmp_path / "data" / "proxy-secret"
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_bytes()) == 32


def test_a_bad_pattern_stops_the_start_with_a_clear_word(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="is not a URL pattern"):
        make_server(tmp_path / "data", PERENNIAL_PROXY_ALLOW="api.example.com").start()


def test_secrets_never_reach_the_log(upstream: Upstream, tmp_path: Path) -> None:
    """13.2: implementations SHOULD avoid logging pre-signed URLs in plain text."""
    server = ServerProcess(tmp_path / "data", SETTINGS)
    secrets = ["upstream-password", TOKEN, SECRET, "a-session-of-mine", "key-in-query"]
    with server, Rig(server, upstream) as rig:
        headers = {"Upstream-Authorization": "Bearer upstream-password"}
        target = rig.script([b"x", HANG])
        url = rig.create(f"{target}?api_key=key-in-query", headers=headers).headers["location"]
        secrets.append(url.partition("signature=")[2])
        rig.post("http://127.0.0.1:1/allowed/x?api_key=key-in-query", headers=headers)
        rig.post("http://evil.example/?api_key=key-in-query", headers=headers)
        rig.post(rig.script([], status=500), headers=headers)
        rig.append(url, rig.script([b"x"], length=100, framing="length"), headers=headers)
        rig.append(url + "x", rig.script([b"x"]), headers=headers)
        rig.connect("a-session-of-mine", headers=headers)
        rig.http.get(url + "&offset=nonsense")
        rig.http.get(url.replace("/v1/", "/v2/"))
        server.kill()
        server.start()
        assert rig.kept(url).ending is FrameType.ERROR
    for secret in secrets:
        assert secret not in server.output
