"""The blocking client against a real server, through connections that break."""

import random
import threading
import time
from collections.abc import Iterator

import pytest

from perennial.client import (
    Disconnected,
    ProxyClient,
    Refused,
    ResponseAborted,
    ResponseFailed,
    StreamEnded,
    UpstreamFailed,
    UrlExpired,
)
from tests.client.cutting import CuttingProxy
from tests.proxy.harness import TOKEN, Rig, stream_id
from tests.upstream import CUT, HANG, Step


@pytest.fixture
def client(rig: Rig) -> Iterator[ProxyClient]:
    with ProxyClient(rig.url, TOKEN) as made:
        yield made


@pytest.fixture
def shaky(cutter: CuttingProxy) -> Iterator[ProxyClient]:
    with ProxyClient(f"{cutter.url}/v1/proxy", TOKEN, patience=3) as made:
        yield made


def test_it_feels_like_an_http_client(rig: Rig, client: ProxyClient) -> None:
    path = "/allowed/feels"
    url = rig.script([b"one ", 0.1, b"two"], path=path, headers=[("Content-Type", "text/x-y"), ("X-A", "1")])
    with client.stream(
        "POST", url, json={"a": 1}, authorization="Bearer up", headers={"X-B": "2"}
    ) as response:
        assert response.status == 200
        assert response.headers["content-type"] == "text/x-y"
        assert response.id == 1
        assert b"".join(response) == b"one two"
    [received] = rig.upstream.requests(path)
    assert received.body == b'{"a": 1}'
    assert received.header("content-type") == "application/json"
    assert received.header("authorization") == "Bearer up"
    assert received.header("x-b") == "2"


def test_cookies_come_one_by_one(rig: Rig, client: ProxyClient) -> None:
    cookies = ["a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT", "b=2"]
    url = rig.script([b"x"], headers=[("Set-Cookie", cookie) for cookie in cookies])
    with client.stream("GET", url) as response:
        assert response.set_cookies == cookies
    with client.stream("GET", rig.script([b"x"])) as response:
        assert response.set_cookies == []


def test_chunks_come_while_the_response_streams(rig: Rig, client: ProxyClient) -> None:
    gates = [threading.Event() for _ in range(3)]
    steps: list[Step] = [step for number, gate in enumerate(gates) for step in (b"%d" % number, gate)]
    with client.stream("GET", rig.script(steps)) as response:
        for number, chunk in enumerate(response):
            assert chunk == b"%d" % number
            gates[number].set()


def test_bodies_as_lines_text_and_json(rig: Rig, client: ProxyClient) -> None:
    lines = rig.script([b"data: a\r\n\r", 0.1, b"\ndata: b\n", b"end"])
    with client.stream("GET", lines) as response:
        assert list(response.iter_lines()) == [b"data: a", b"", b"data: b", b"end"]
    assert client.stream("GET", rig.script(["grün".encode()])).text() == "grün"
    assert client.stream("GET", rig.script([b'{"a": [1]}'])).json() == {"a": [1]}


def test_reading_resumes_after_breaks_anywhere(rig: Rig, cutter: CuttingProxy, shaky: ProxyClient) -> None:
    """4.5: client implementations MUST handle partial frames when resuming from an offset within a frame."""
    chooser = random.Random(7)
    pieces = [bytes([chooser.randrange(256)]) * chooser.randrange(1, 9000) for _ in range(40)]
    steps: list[Step] = [step for piece in pieces for step in (piece, 0.005)]
    path = "/allowed/breaks"
    response = shaky.stream("GET", rig.script(steps, path=path))
    cutter.cuts += [chooser.randrange(900, 6000) for _ in range(30)]
    assert response.read() == b"".join(pieces)
    assert cutter.broken >= 10
    assert len(rig.upstream.requests(path)) == 1


def test_every_cut_of_a_short_response_gives_the_same_body(
    rig: Rig, cutter: CuttingProxy, shaky: ProxyClient
) -> None:
    url = rig.create(rig.script([b"hello ", 0.1, b"world"])).headers["location"]
    rig.ended(url)
    through = url.replace(rig.server.url, cutter.url)
    whole = len(rig.read(url, offset="-1").content)
    for cut in range(0, whole + 800, 37):
        cutter.cuts[:] = [cut, cut // 2]
        assert shaky.resume(through).read() == b"hello world"


def test_another_process_resumes_by_url_and_offset(rig: Rig, client: ProxyClient) -> None:
    with client.stream("GET", rig.script([b"one", 0.2, b"two", 0.2, b"three"])) as response:
        first = next(iter(response))
        url, offset = response.url, response.offset
    with ProxyClient(rig.url) as elsewhere:
        assert elsewhere.resume(url).read() == b"onetwothree"
        resumed = elsewhere.resume(url, offset=offset)
        assert first + resumed.read() == b"onetwothree"
        assert resumed.status is None


def test_interleaved_responses_are_told_apart(rig: Rig, client: ProxyClient) -> None:
    """4.5: clients MUST parse the frame format to extract individual upstream responses."""
    session = client.connect("told-apart")
    gate = threading.Event()
    first = session.stream("GET", rig.script([b"a1", gate, b"a2"]))
    second = session.stream("GET", rig.script([b"b1", gate, b"b2"]))
    gate.set()
    assert (first.id, second.id) == (1, 2)
    assert second.read() == b"b1b2"
    assert first.read() == b"a1a2"
    assert session.resume(2).read() == b"b1b2"
    third = client.append(session.url, "GET", rig.script([b"c"]))
    assert (third.id, third.read()) == (3, b"c")


def test_an_expired_url_is_renewed_through_the_session(rig: Rig, client: ProxyClient) -> None:
    """4.5: when renewable is true, the client can obtain a fresh URL by reconnecting with its Session-Id."""
    session = client.connect("renewed", ttl=1)
    response = session.stream("GET", rig.script([b"one", 2.0, b"two", 0.2, b"three"]), ttl=1)
    before = response.url
    assert response.read() == b"onetwothree"
    assert response.url != before


def test_without_its_session_an_expired_url_is_the_end(rig: Rig, client: ProxyClient) -> None:
    session = client.connect("not-known", ttl=0)
    created = rig.create(rig.script([b"x"]), headers={"Stream-Signed-URL-TTL": "0"}).headers["location"]
    time.sleep(0.6)
    for url, renewable in ((session.url, True), (created, False)):
        with pytest.raises(UrlExpired) as caught:
            client.resume(url)
        assert caught.value.renewable is renewable
        assert caught.value.stream_id == stream_id(url)


def test_failures_of_the_response_are_raised_after_its_bytes(rig: Rig, client: ProxyClient) -> None:
    response = client.stream("GET", rig.script([b"some", 0.1, CUT]))
    chunks = iter(response)
    assert next(chunks) == b"some"
    with pytest.raises(ResponseFailed) as caught:
        next(chunks)
    assert caught.value.code == "UPSTREAM_ERROR"


def test_abort_stops_the_upstream_and_the_iteration(rig: Rig, client: ProxyClient) -> None:
    path = "/allowed/aborted"
    response = client.stream("GET", rig.script([b"some", HANG], path=path))
    chunks = []
    for chunk in response:
        chunks.append(chunk)
        response.abort()
    assert chunks == [b"some"]
    assert rig.upstream.wait_for(path).peer_gone.wait(10)
    with pytest.raises(ResponseAborted):
        client.resume(response.url).read()


def test_refusals_say_what_is_wrong(rig: Rig, client: ProxyClient) -> None:
    with pytest.raises(UpstreamFailed) as failed:
        client.stream("GET", rig.script([b"no"], status=418))
    assert (failed.value.upstream_status, failed.value.body) == (418, b"no")
    with pytest.raises(Refused) as refused:
        client.stream("GET", "http://evil.example/")
    assert (refused.value.status, refused.value.code) == (403, "UPSTREAM_NOT_ALLOWED")
    with ProxyClient(rig.url) as stranger, pytest.raises(Refused, match="MISSING_SECRET"):
        stranger.stream("GET", rig.script())


def test_a_deleted_or_closed_stream_ends_the_reading(rig: Rig, client: ProxyClient) -> None:
    response = client.stream("GET", rig.script([b"x", HANG]))
    assert next(iter(response)) == b"x"
    client.delete(stream_id(response.url))
    with pytest.raises(StreamEnded):
        response.read()


def test_patience_ends(rig: Rig, cutter: CuttingProxy) -> None:
    with ProxyClient(f"{cutter.url}/v1/proxy", TOKEN, patience=0.3) as client:
        response = client.stream("GET", rig.script([b"x", 0.5, b"y"]))
        cutter.refusing.set()
        cutter.cuts += [0] * 10
        with pytest.raises(Disconnected) as caught:
            response.read()
        assert caught.value.next_offset == response.offset
        cutter.refusing.clear()
        cutter.cuts.clear()
        assert client.resume(response.url, offset=response.offset).read() in (b"xy", b"y")
    with pytest.raises(Disconnected), ProxyClient("http://127.0.0.1:1/v1/proxy") as nobody:
        nobody.stream("GET", "http://x/")


def test_a_server_that_restarts_is_waited_for(own: Rig) -> None:
    with ProxyClient(own.url, TOKEN) as client:
        response = client.stream("GET", own.script([b"before", HANG]))
        assert next(iter(response)) == b"before"
        own.server.kill()
        restarting = threading.Thread(target=own.server.start)
        restarting.start()
        with pytest.raises(ResponseFailed, match="restarted"):
            response.read()
        restarting.join()


def test_session_names_may_be_in_any_script(rig: Rig, client: ProxyClient) -> None:
    session = client.connect("разговор 42")
    assert client.connect("разговор 42").stream_id == session.stream_id
    assert client.connect("разговор 43").stream_id != session.stream_id


def test_upstreams_are_asked_for_plain_bodies(rig: Rig, client: ProxyClient) -> None:
    path = "/allowed/plain-bodies"
    client.stream("GET", rig.script([b"x"], path=path)).read()
    client.stream("GET", rig.script([b"x"], path=path), headers={"Accept-Encoding": "br"}).read()
    assert [each.header("accept-encoding") for each in rig.upstream.requests(path)] == ["identity", "br"]
