"""Appending further responses to a stream (sections 4.3, 5.3, 8.5)."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from perennial.protocol.frames import FrameType
from tests.proxy.harness import TOKEN, Rig, bearer, error_code, stream_id


def test_append_gets_the_next_id_and_a_fresh_url(rig: Rig) -> None:
    """4.3: 200 with Location, Upstream-Content-Type and the next sequential Stream-Response-Id."""
    url = rig.create(rig.script([b"one"])).headers["location"]
    for number in (2, 3):
        answer = rig.append(url, rig.script([b"more"], headers=[("Content-Type", "text/x-more")]))
        assert answer.status_code == 200
        assert answer.headers["stream-response-id"] == str(number)
        assert answer.headers["upstream-content-type"] == "text/x-more"
        assert answer.content == b""
        assert stream_id(answer.headers["location"]) == stream_id(url)
        assert rig.ended(answer.headers["location"], number).body == b"more"
    assert rig.ended(url, 1).body == b"one"


def test_every_success_returns_a_fresh_url(rig: Rig) -> None:
    """4.3, 8.4: the server MUST return a fresh pre-signed URL on every successful create, append, connect."""
    ttl = {"Stream-Signed-URL-TTL": "100"}
    session = rig.connect("fresh", headers=ttl).headers["location"]
    created = rig.create(rig.script([b"x"]), headers=ttl).headers["location"]
    time.sleep(1.1)
    again = rig.connect("fresh", headers=ttl).headers["location"]
    appended = rig.append(created, rig.script([b"x"]), headers=ttl).headers["location"]
    assert again != session
    assert appended != created
    for url in (again, appended):
        assert rig.read(url).status_code == 200


def test_an_expired_url_is_good_for_appending(rig: Rig) -> None:
    """8.5: on write paths the server validates the HMAC signature but ignores the expiration timestamp."""
    url = rig.create(rig.script([b"x"]), headers={"Stream-Signed-URL-TTL": "0"}).headers["location"]
    time.sleep(0.6)
    assert error_code(rig.read(url)) == "SIGNATURE_EXPIRED"
    answer = rig.append(url, rig.script([b"y"]))
    assert answer.status_code == 200
    assert rig.ended(answer.headers["location"], 2).body == b"y"


@pytest.mark.parametrize(
    "url",
    ["nonsense", "http://", "http://host/v1/proxy/some-id", "ftp://h/v1/proxy/x?expires=1&signature=y", "?a"],
)
def test_what_is_no_stream_url_is_malformed(rig: Rig, url: str) -> None:
    """4.3: 400 with MALFORMED_STREAM_URL."""
    answer = rig.append(url, rig.script())
    assert (answer.status_code, error_code(answer)) == (400, "MALFORMED_STREAM_URL")


def test_a_forged_signature_is_invalid(rig: Rig) -> None:
    """4.3: 401 with SIGNATURE_INVALID."""
    url = rig.create(rig.script([b"x"])).headers["location"]
    answer = rig.append(url[:-4] + "AAAA", rig.script())
    assert (answer.status_code, error_code(answer)) == (401, "SIGNATURE_INVALID")


def test_a_deleted_stream_is_not_found(rig: Rig) -> None:
    """4.3: 404 with STREAM_NOT_FOUND."""
    url = rig.create(rig.script([b"x"])).headers["location"]
    rig.delete(stream_id(url))
    answer = rig.append(url, rig.script())
    assert (answer.status_code, error_code(answer)) == (404, "STREAM_NOT_FOUND")


def test_a_closed_stream_takes_no_more(rig: Rig) -> None:
    """4.3, 4.9: 409 with STREAM_CLOSED once the stream was closed via the base protocol."""
    url = rig.create(rig.script([b"x"])).headers["location"]
    before = rig.ended(url)
    close_stream(rig, url)
    answer = rig.append(url, rig.script())
    assert (answer.status_code, error_code(answer)) == (409, "STREAM_CLOSED")
    assert rig.kept(url).body == before.body


def test_closing_a_stream_ends_its_responses_first(rig: Rig) -> None:
    """5.3: there MUST be exactly one terminal frame, also when the stream is closed under a response."""
    gate = threading.Event()
    url = rig.create(rig.script([b"before", gate, b"after"])).headers["location"]
    rig.until_data(url, b"before")
    close_stream(rig, url)
    kept = rig.kept(url)
    assert kept.body == b"before"
    assert kept.ending is FrameType.ERROR
    gate.set()


def test_the_order_of_the_checks(rig: Rig) -> None:
    """4.3: authentication, URL, signature, existence, closure, upstream headers, allowlist, in this order."""
    url = rig.create(rig.script([b"x"])).headers["location"]
    forged = url[:-4] + "AAAA"
    assert error_code(rig.append("nonsense", "http://evil/", token=None)) == "MISSING_SECRET"
    assert error_code(rig.append("nonsense", "http://evil/")) == "MALFORMED_STREAM_URL"
    assert error_code(rig.append(forged, "http://evil/")) == "SIGNATURE_INVALID"
    assert error_code(rig.append(url, "http://evil/", method="NONSENSE")) == "INVALID_UPSTREAM_METHOD"
    assert error_code(rig.append(url, "http://evil/")) == "UPSTREAM_NOT_ALLOWED"
    rig.delete(stream_id(url))
    assert error_code(rig.append(url, "http://evil/", method="NONSENSE")) == "STREAM_NOT_FOUND"


def test_failed_requests_do_not_consume_an_id(rig: Rig) -> None:
    """5.3: failed upstream requests do not consume a response ID and no frames are written."""
    url = rig.create(rig.script([b"x"])).headers["location"]
    rig.ended(url)
    tail = rig.tail(url)
    assert rig.append(url, rig.script([b"no"], status=500)).status_code == 502
    assert (
        rig.append(url, rig.script([], status=302, headers=[("Location", "/allowed/x")])).status_code == 400
    )
    assert rig.tail(url) == tail
    assert rig.append(url, rig.script([b"y"])).headers["stream-response-id"] == "2"


def test_responses_in_flight_together_are_interleaved(rig: Rig) -> None:
    """5.3: multiple responses MAY be in flight concurrently; readers demultiplex by response id."""
    gates = [threading.Event() for _ in range(4)]
    url = rig.create(rig.script([b"a1", gates[0], b"a2", gates[2], b"a3"])).headers["location"]
    second = rig.append(url, rig.script([b"b1", gates[1], b"b2", gates[3], b"b3"]))
    assert second.headers["stream-response-id"] == "2"
    rig.until_data(url, b"b1", 2)
    for gate, (number, body) in zip(
        gates, [(1, b"a1a2"), (2, b"b1b2"), (1, b"a1a2a3"), (2, b"b1b2b3")], strict=True
    ):
        gate.set()
        rig.until_data(url, body, number)
    assert rig.ended(url, 1).ending is rig.ended(url, 2).ending is FrameType.COMPLETE
    order = [frame.response_id for frame in rig.frames(url) if frame.type is FrameType.DATA]
    assert order != sorted(order)


def test_ids_are_sequential_when_many_start_at_once(rig: Rig) -> None:
    """5.3: response IDs are assigned sequentially starting from 1."""
    url = rig.create(rig.script([b"x"])).headers["location"]
    targets = [rig.script([b"%d" % number]) for number in range(20)]
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda target: rig.append(url, target), targets))
    ids = {int(answer.headers["stream-response-id"]): number for number, answer in enumerate(answers)}
    assert sorted(ids) == list(range(2, 22))
    for response_id, number in ids.items():
        assert rig.ended(url, response_id).body == b"%d" % number


def close_stream(rig: Rig, url: str) -> None:
    answer = rig.http.post(
        f"{rig.server.url}/ds/proxy/{stream_id(url)}", headers={**bearer(TOKEN), "Stream-Closed": "true"}
    )
    assert answer.status_code == 204, answer.text
