"""Creating a proxy stream, and what the upstream sees of the request (sections 4.1, 4.2, 6)."""

import socket
import threading
import uuid

import httpx
import pytest

from perennial.protocol.frames import FrameType
from tests.proxy.harness import TOKEN, Rig, error_code, stream_id
from tests.upstream import CUT, HANG, Received


def seen(rig: Rig, upstream_url: str) -> Received:
    [received] = rig.upstream.requests(upstream_url.partition(str(rig.upstream.port))[2])
    return received


def test_create_answers_201_with_location_content_type_and_id(rig: Rig) -> None:
    """4.2: `201 Created` with `Location`, `Upstream-Content-Type`, `Stream-Response-Id`, and no body."""
    answer = rig.create(rig.script([b"hello"], headers=[("Content-Type", "text/event-stream")]))
    assert answer.headers["upstream-content-type"] == "text/event-stream"
    assert answer.headers["stream-response-id"] == "1"
    assert answer.headers["location"].startswith(f"{rig.url}/")
    assert answer.content == b""


def test_stream_ids_are_random_uuids(rig: Rig) -> None:
    """3: implementations SHOULD use UUIDs or another scheme that produces unique, URL-safe identifiers."""
    url = rig.script([b"x"])
    ids = {stream_id(rig.create(url).headers["location"]) for _ in range(5)}
    assert len(ids) == 5
    assert {uuid.UUID(each).version for each in ids} == {4}


def test_the_response_is_kept_as_start_data_and_complete(rig: Rig) -> None:
    """4.2, 5.3: a Start frame, Data frames, and a terminal frame, with response id 1."""
    kept = rig.ended(rig.create(rig.script([b"one ", b"two"])).headers["location"])
    assert kept.frames[0].type is FrameType.START
    assert kept.start.status == 200
    assert kept.body == b"one two"
    assert kept.ending is FrameType.COMPLETE
    assert {frame.response_id for frame in kept.frames} == {1}


def test_201_comes_before_the_body_is_consumed(rig: Rig) -> None:
    """4.2: the proxy MUST return the 201 before the upstream response body is fully consumed."""
    gate = threading.Event()
    url = rig.create(rig.script([b"first", gate, b"second"])).headers["location"]
    rig.until_data(url, b"first")
    assert rig.kept(url).ending is None
    gate.set()
    assert rig.ended(url).body == b"firstsecond"


def test_201_comes_before_any_body_and_the_start_frame_is_there(rig: Rig) -> None:
    """4.2: the piping runs asynchronously; a reader finds the Start frame as soon as there is a 201."""
    gate = threading.Event()
    url = rig.create(rig.script([gate, b"x"], status=203)).headers["location"]
    [frame] = rig.frames(url)
    assert frame.type is FrameType.START
    assert rig.kept(url).start.status == 203
    gate.set()


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_every_way_to_frame_a_body_ends_complete(rig: Rig, framing: str) -> None:
    kept = rig.ended(rig.create(rig.script([b"a" * 5000, b"b"], framing=framing)).headers["location"])
    assert kept.body == b"a" * 5000 + b"b"
    assert kept.ending is FrameType.COMPLETE


def test_an_empty_2xx_body_is_start_and_complete(rig: Rig) -> None:
    kept = rig.ended(rig.create(rig.script([], status=204, framing="none")).headers["location"])
    assert [frame.type for frame in kept.frames] == [FrameType.START, FrameType.COMPLETE]
    assert kept.start.status == 204


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_method_and_body_are_forwarded_as_they_are(rig: Rig, method: str) -> None:
    """4.2: Upstream-Method is one of five; the request body is forwarded to the upstream as-is."""
    url, body = rig.script([b"x"]), bytes(range(256))
    rig.create(url, method=method, body=body, headers={"Content-Type": "application/x-bytes"})
    received = seen(rig, url)
    assert received.method == method
    assert received.body == body
    assert received.header("content-length") == "256"
    assert received.header("content-type") == "application/x-bytes"


@pytest.mark.parametrize("method", ["OPTIONS", "HEAD", "TRACE", "get", "NONSENSE"])
def test_other_methods_are_refused(rig: Rig, method: str) -> None:
    """4.2: Upstream-Method MUST be one of GET, POST, PUT, PATCH, DELETE."""
    answer = rig.post(rig.script([b"x"]), method=method)
    assert (answer.status_code, error_code(answer)) == (400, "INVALID_UPSTREAM_METHOD")


def test_upstream_url_and_method_are_required(rig: Rig) -> None:
    """12.1: MISSING_UPSTREAM_URL and MISSING_UPSTREAM_METHOD."""
    answer = rig.post(None)
    assert (answer.status_code, error_code(answer)) == (400, "MISSING_UPSTREAM_URL")
    answer = rig.post(rig.script(), method=None)
    assert (answer.status_code, error_code(answer)) == (400, "MISSING_UPSTREAM_METHOD")


@pytest.mark.parametrize(
    "url", ["not a url", "/allowed/x", "ftp://127.0.0.1/allowed/x", "http://", "http:///allowed/x"]
)
def test_what_is_no_absolute_http_url_is_refused(rig: Rig, url: str) -> None:
    """4.2: Upstream-URL MUST be a valid absolute HTTP or HTTPS URL."""
    answer = rig.post(url)
    assert (answer.status_code, error_code(answer)) == (403, "UPSTREAM_NOT_ALLOWED")


def test_headers_for_the_proxy_stay_with_it(rig: Rig) -> None:
    """6.1, 6.2: Host, Authorization and the proxy's own headers are replaced or MUST be stripped."""
    url = rig.script([b"x"])
    rig.create(url, headers={"Upstream-Authorization": "Bearer for-upstream", "Stream-Signed-URL-TTL": "60"})
    received = seen(rig, url)
    assert received.header("authorization") == "Bearer for-upstream"
    assert received.header("host") == f"127.0.0.1:{rig.upstream.port}"
    names = {name.lower() for name, _ in received.headers}
    assert not names & {
        "upstream-url",
        "upstream-method",
        "upstream-authorization",
        "use-stream-url",
        "session-id",
        "stream-signed-url-ttl",
    }


def test_the_clients_authorization_is_not_forwarded(rig: Rig) -> None:
    """4.2: the client's Authorization header is used for the proxy and is NOT forwarded to upstream."""
    url = rig.script([b"x"])
    rig.create(url)
    assert seen(rig, url).header("authorization") is None


def test_hop_by_hop_headers_are_stripped(rig: Rig) -> None:
    """6.2: the proxy MUST strip Connection, Keep-Alive, Proxy-*, TE, Trailers, Transfer-Encoding, Upgrade."""
    url = rig.script([b"x"])
    rig.create(
        url,
        headers={
            "Connection": "close, X-Only-This-Hop",
            "X-Only-This-Hop": "1",
            "Keep-Alive": "timeout=5",
            "Proxy-Authenticate": "Basic",
            "Proxy-Authorization": "Basic abc",
            "TE": "trailers",
            "Trailer": "X-Sum",
            "Trailers": "X-Sum",
            "Upgrade": "h2c",
            "X-Stays": "yes",
        },
    )
    received = seen(rig, url)
    names = {name.lower() for name, _ in received.headers}
    assert "x-stays" in names
    assert not names & {
        "connection",
        "x-only-this-hop",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "trailers",
        "transfer-encoding",
        "upgrade",
    }


def test_all_other_headers_are_forwarded_and_none_is_made_up(rig: Rig) -> None:
    """6.1: all other headers are forwarded as-is to upstream."""
    url = rig.script([b"x"])
    sent = [
        (b"Accept", b"text/event-stream"),
        (b"Accept-Encoding", b"br"),
        (b"Cookie", b"a=1; b=2"),
        (b"X-Name", "grün".encode()),
        (b"User-Agent", b"me"),
        (b"Authorization", b"Bearer a-service-token"),
        (b"Upstream-URL", url.encode()),
        (b"Upstream-Method", b"GET"),
    ]
    answer = rig.http.request("POST", rig.url, headers=sent)
    assert answer.status_code == 201
    received = seen(rig, url)
    assert received.header("accept") == "text/event-stream"
    assert received.header("accept-encoding") == "br"
    assert received.header("cookie") == "a=1; b=2"
    assert received.header("user-agent") == "me"
    assert (received.header("x-name") or "").encode("latin-1") == "grün".encode()


def test_repeated_headers_reach_the_upstream_as_one_that_means_the_same(rig: Rig) -> None:
    """RFC 9110, 5.3: a recipient MAY combine them with a comma. Cookies are taken apart at semicolons."""
    url = rig.script([b"x"])
    sent = [("Accept", "text/plain"), ("Accept", "text/html"), ("Cookie", "a=1"), ("Cookie", "b=2")]
    wanted = [("Authorization", f"Bearer {TOKEN}"), ("Upstream-URL", url), ("Upstream-Method", "GET")]
    assert rig.http.request("POST", rig.url, headers=sent + wanted).status_code == 201
    received = seen(rig, url)
    assert received.header("accept") == "text/plain, text/html"
    assert received.header("cookie") == "a=1; b=2"


def test_start_frame_has_lower_case_headers_without_those_of_the_hop(rig: Rig) -> None:
    """5.2: status and headers are REQUIRED; header names MUST be lowercased."""
    headers = [
        ("Content-Type", "text/plain"),
        ("X-Request-ID", "abc"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
        ("Keep-Alive", "timeout=5"),
        ("Connection", "X-Hop"),
        ("X-Hop", "1"),
    ]
    kept = rig.ended(rig.create(rig.script([b"x"], headers=headers)).headers["location"])
    assert kept.start.headers == {
        "content-type": "text/plain",
        "x-request-id": "abc",
        "set-cookie": "a=1,\tb=2",
    }
    assert kept.start.set_cookies == ["a=1", "b=2"]


def test_encoded_bodies_are_kept_as_sent(rig: Rig) -> None:
    """9.2: what is kept is the body as it arrives; nothing decodes it on the way."""
    body = b"\x1f\x8b not really gzip"
    url = rig.script([body], headers=[("Content-Encoding", "gzip")])
    kept = rig.ended(rig.create(url).headers["location"])
    assert kept.body == body
    assert kept.start.headers["content-encoding"] == "gzip"


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
def test_an_upstream_error_is_passed_on_and_nothing_is_created(rig: Rig, status: int) -> None:
    """4.2: 502 with Upstream-Status and the upstream's body. No stream is created. No frames are written."""
    url = rig.script([b'{"oops": 1}'], status=status, headers=[("Content-Type", "application/json")])
    answer = rig.post(url)
    assert answer.status_code == 502
    assert answer.headers["upstream-status"] == str(status)
    assert answer.headers["content-type"] == "application/json"
    assert answer.content == b'{"oops": 1}'
    assert "location" not in answer.headers
    assert "stream-response-id" not in answer.headers


def test_large_error_bodies_are_truncated(rig: Rig) -> None:
    """4.2, 13.5: implementations SHOULD truncate large error bodies."""
    answer = rig.post(rig.script([b"x" * 50_000] * 40, status=500))
    assert answer.status_code == 502
    assert answer.content == b"x" * 65536


def test_an_error_body_that_never_ends_is_not_waited_for(rig: Rig) -> None:
    answer = rig.post(rig.script([b"because", HANG], status=500))
    assert (answer.status_code, answer.content) == (502, b"because")


def test_a_client_that_leaves_takes_its_upstream_request_along(rig: Rig) -> None:
    path = f"/allowed/{uuid.uuid4().hex}"
    url = rig.script([b"x"], path=path, before_headers=[HANG])
    with pytest.raises(httpx.ReadTimeout):
        rig.http.post(
            rig.url,
            headers={
                "Authorization": "Bearer a-service-token",
                "Upstream-URL": url,
                "Upstream-Method": "GET",
            },
            timeout=0.3,
        )
    assert rig.upstream.wait_for(path).peer_gone.wait(10)


def test_no_answer_from_the_upstream_is_an_upstream_error(rig: Rig) -> None:
    """12.4: 502 UPSTREAM_ERROR."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    answer = rig.post(f"http://127.0.0.1:{port}/allowed/x")
    assert (answer.status_code, error_code(answer)) == (502, "UPSTREAM_ERROR")
    answer = rig.post(rig.script([b"x"], before_headers=[CUT]))
    assert (answer.status_code, error_code(answer)) == (502, "UPSTREAM_ERROR")


def test_use_stream_url_comes_before_session_id(rig: Rig) -> None:
    """4.1: a request with both Session-Id and Use-Stream-URL is an append, not a connect."""
    first = rig.create(rig.script([b"one"]))
    answer = rig.append(first.headers["location"], rig.script([b"two"]), headers={"Session-Id": "s"})
    assert answer.status_code == 200
    assert answer.headers["stream-response-id"] == "2"
    assert stream_id(answer.headers["location"]) == stream_id(first.headers["location"])
