"""Reading by signed URL or service token (sections 1.1, 4.5, 8, 10.2)."""

import base64
import json
import threading
import time

import httpx
import pytest

from perennial.protocol.frames import FrameParser
from tests.proxy.harness import TOKEN, Rig, bearer, error_code, stream_id


@pytest.fixture(scope="module")
def url(rig: Rig) -> str:
    location = rig.create(rig.script([b"one", b"two"])).headers["location"]
    rig.ended(location)
    return location


def test_a_signed_url_is_enough_to_read(rig: Rig, url: str) -> None:
    """8: possession of the URL is sufficient for access; 1.1: the read path MUST be implemented."""
    answer = rig.read(url)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/octet-stream"
    assert int(answer.headers["stream-next-offset"]) == len(answer.content)
    assert answer.headers["stream-up-to-date"] == "true"
    assert "private" in answer.headers["cache-control"]


def test_a_service_token_reads_too(rig: Rig, url: str) -> None:
    """10.2: for GET, servers SHOULD accept both pre-signed URLs and service authentication as fallback."""
    bare = f"{rig.url}/{stream_id(url)}"
    answer = rig.http.get(bare, headers=bearer(TOKEN))
    assert answer.status_code == 200
    assert answer.content == rig.read(url).content
    rescued = rig.http.get(f"{bare}?expires=1&signature=bad", headers=bearer(TOKEN))
    assert rescued.status_code == 200


def test_reading_without_either_is_refused(rig: Rig, url: str) -> None:
    """4.5: 401 for missing or invalid authentication; 12.2: MISSING_SIGNATURE."""
    bare = f"{rig.url}/{stream_id(url)}"
    for query in ("", "?expires=99999999999", "?signature=x", "?offset=-1"):
        answer = rig.http.get(bare + query)
        assert (answer.status_code, error_code(answer)) == (401, "MISSING_SIGNATURE")
    answer = rig.http.get(bare, headers=bearer("wrong"))
    assert (answer.status_code, error_code(answer)) == (401, "MISSING_SIGNATURE")


def test_signatures_are_bound_to_stream_and_expiry(rig: Rig, url: str) -> None:
    """8.2, 8.3: invalid signatures are 401 SIGNATURE_INVALID; no access to other streams."""
    other = rig.create(rig.script([b"x"])).headers["location"]
    parts = httpx.URL(url)
    expires, signature = parts.params["expires"], parts.params["signature"]
    bare = f"{rig.url}/{stream_id(url)}"
    forged = [
        f"{bare}?expires={int(expires) + 1}&signature={signature}",
        f"{bare}?expires={expires}&signature={signature[:-1]}",
        f"{bare}?expires={expires}&signature=" + "A" * len(signature),
        f"{bare}?expires=+{expires}&signature={signature}",
        f"{rig.url}/{stream_id(other)}?expires={expires}&signature={signature}",
    ]
    for each in forged:
        answer = rig.http.get(each)
        assert (answer.status_code, error_code(answer)) == (401, "SIGNATURE_INVALID")


def test_an_expired_url_says_whether_it_can_be_renewed(rig: Rig) -> None:
    """4.5: MUST be a structured error; renewable MUST be true for sessions, and MUST be false otherwise."""
    short = {"Stream-Signed-URL-TTL": "0"}
    created = rig.create(rig.script([b"x"]), headers=short).headers["location"]
    session = rig.connect("expires", headers=short).headers["location"]
    time.sleep(0.6)
    for url, renewable in ((created, False), (session, True)):
        answer = rig.read(url)
        assert (answer.status_code, error_code(answer)) == (401, "SIGNATURE_EXPIRED")
        error = answer.json()["error"]
        assert error["renewable"] is renewable
        assert error["streamId"] == stream_id(url)
    # An expired URL of a stream that is gone says so first (the holder once had the right to know).
    rig.delete(stream_id(created))
    assert error_code(rig.read(created)) == "SIGNATURE_EXPIRED"
    assert rig.read(rig.connect("expires").headers["location"]).status_code == 200


def test_a_missing_stream_is_404(rig: Rig) -> None:
    """4.5: 404 when the stream does not exist."""
    url = rig.create(rig.script([b"x"])).headers["location"]
    rig.delete(stream_id(url))
    answer = rig.read(url)
    assert (answer.status_code, error_code(answer)) == (404, "STREAM_NOT_FOUND")


def test_reads_resume_at_any_byte(rig: Rig, url: str) -> None:
    """4.5: clients can resume reading from any byte offset, including mid-frame."""
    whole = rig.read(url).content
    for offset in (0, 1, 8, 9, 10, len(whole) - 1, len(whole)):
        assert rig.read(url, offset=f"{offset:016d}").content == whole[offset:]


def test_long_poll_delivers_what_comes(rig: Rig) -> None:
    """4.5: live=long-poll, 204 when nothing comes in time."""
    gate = threading.Event()
    url = rig.create(rig.script([gate, b"late"])).headers["location"]
    offset = f"{rig.tail(url):016d}"
    threading.Timer(0.2, gate.set).start()
    answer = rig.read(url, offset=offset, live="long-poll")
    assert answer.status_code == 200
    [frame, *_] = FrameParser(int(offset)).feed(answer.content)
    assert frame.payload == b"late"
    rig.ended(url)
    assert rig.read(url, offset=f"{rig.tail(url):016d}", live="long-poll").status_code == 204


def test_sse_delivers_frames_in_base64(rig: Rig, url: str) -> None:
    """4.5: live=sse, as the base protocol sends binary streams."""
    received = b""
    with rig.http.stream("GET", f"{url}&offset=-1&live=sse") as answer:
        assert answer.headers["stream-sse-data-encoding"] == "base64"
        kind = ""
        for line in answer.iter_lines():
            if line.startswith("event:"):
                kind = line.removeprefix("event:").strip()
            elif line.startswith("data:") and kind == "data":
                received += base64.b64decode(line.removeprefix("data:"))
            elif line.startswith("data:") and json.loads(line.removeprefix("data:")).get("upToDate"):
                break
    assert received == rig.read(url).content


def test_head_wants_service_authentication(rig: Rig, url: str) -> None:
    """4.7, 8.3: service authentication only; a pre-signed URL does NOT grant metadata access."""
    answer = rig.look(stream_id(url))
    assert answer.status_code == 200
    assert int(answer.headers["stream-next-offset"]) == rig.tail(url)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert rig.http.head(url).status_code == 401
    assert rig.look(stream_id(url), token="wrong").status_code == 401
    assert rig.look("11111111-1111-4111-8111-111111111111").status_code == 404


def test_ttl_is_asked_for_clamped_and_defaulted(rig: Rig, hasty: Rig) -> None:
    """8.4: a default expiration SHOULD be set and configurable; a TTL over the maximum SHOULD be clamped."""
    cases = [
        (rig, None, 3600),
        (rig, "77", 77),
        (rig, "99999999", 604800),
        (hasty, None, 120),
        (hasty, "9999", 600),
    ]
    for each, asked, lifetime in cases:
        headers = {} if asked is None else {"Stream-Signed-URL-TTL": asked}
        location = each.create(each.script([b"x"]), headers=headers).headers["location"]
        assert abs(int(httpx.URL(location).params["expires"]) - time.time() - lifetime) < 5


@pytest.mark.parametrize("ttl", ["-1", "abc", "1.5", "+5", ""])
def test_a_malformed_ttl_is_refused(rig: Rig, ttl: str) -> None:
    answer = rig.post(rig.script(), headers={"Stream-Signed-URL-TTL": ttl})
    assert answer.status_code == 400


def test_underneath_it_is_an_ordinary_stream_for_service_tokens_only(rig: Rig, url: str) -> None:
    """4.9: with a service token the stream can be read, looked at and closed at /ds/proxy/{stream-id}."""
    plain = f"{rig.server.url}/ds/proxy/{stream_id(url)}"
    assert rig.http.get(plain, headers=bearer(TOKEN)).content == rig.read(url).content
    assert rig.http.head(plain, headers=bearer(TOKEN)).status_code == 200
    assert rig.http.get(plain).status_code in (401, 404)
    assert (
        rig.http.get(f"{rig.server.url}/v1/stream/{stream_id(url)}", headers=bearer(TOKEN)).status_code == 404
    )
