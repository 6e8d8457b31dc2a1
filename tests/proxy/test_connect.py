"""Sessions (section 4.4)."""

import threading
import uuid

from perennial.proxy.operations import SESSION_NAMESPACE
from tests.proxy.harness import Rig, error_code, stream_id
from tests.upstream import CUT, HANG


def test_connect_creates_once_and_then_rejoins(rig: Rig) -> None:
    """4.4: 201 when the stream was newly created, 200 when reconnecting; Location, and no response body."""
    first, second = rig.connect("create-once"), rig.connect("create-once")
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.content == second.content == b""
    assert stream_id(first.headers["location"]) == stream_id(second.headers["location"])
    assert rig.read(second.headers["location"]).content == b""


def test_stream_ids_are_derived_from_the_session(rig: Rig) -> None:
    """4.4: the stream ID MUST be derived deterministically; SHOULD be UUIDv5; the namespace MUST be fixed."""
    answer = rig.connect("derive-me")
    assert stream_id(answer.headers["location"]) == str(uuid.uuid5(SESSION_NAMESPACE, "derive-me"))
    assert str(SESSION_NAMESPACE) == "6f1c1f7e-52c8-5b1e-9d0a-3c4c0f0e8a55"
    other = rig.connect("derive-me-too")
    assert stream_id(other.headers["location"]) != stream_id(answer.headers["location"])


def test_the_auth_endpoint_is_asked_by_post_with_the_stream_id(rig: Rig) -> None:
    """4.4: POST with Stream-Id, the client's headers and body; Upstream-Method is not used."""
    path = f"/allowed/{uuid.uuid4().hex}"
    url = rig.script([b"ignored"], path=path)
    answer = rig.connect(
        "asked",
        upstream_url=url,
        body=b"who am I",
        headers={
            "Upstream-Method": "DELETE",
            "Upstream-Authorization": "Bearer user",
            "X-User": "u1",
            "Stream-Id": "forged",
        },
    )
    assert answer.status_code == 201
    [received] = rig.upstream.requests(path)
    assert received.method == "POST"
    assert received.body == b"who am I"
    assert received.header("stream-id") == stream_id(answer.headers["location"])
    assert received.header("authorization") == "Bearer user"
    assert received.header("x-user") == "u1"
    assert received.header("session-id") is None
    assert received.header("upstream-method") is None


def test_a_rejected_connect_creates_nothing(rig: Rig) -> None:
    """4.4: a non-2xx auth endpoint gives 401 CONNECT_REJECTED."""
    for status in (401, 403, 500, 302):
        answer = rig.connect("rejected", upstream_url=rig.script([b"no"], status=status))
        assert (answer.status_code, error_code(answer)) == (401, "CONNECT_REJECTED")
    assert rig.connect("rejected").status_code == 201


def test_the_auth_endpoints_body_is_not_waited_for(rig: Rig) -> None:
    """4.4: the auth endpoint's response body is discarded. Only the status code matters."""
    answer = rig.connect("no-body", upstream_url=rig.script([b"x", HANG]))
    assert answer.status_code == 201
    assert rig.read(answer.headers["location"]).content == b""


def test_auth_endpoints_must_be_allowed(rig: Rig) -> None:
    """4.4: the auth endpoint's URL MUST match at least one pattern in the server's allowlist."""
    answer = rig.connect("not-allowed", upstream_url=rig.upstream.url("/elsewhere"))
    assert (answer.status_code, error_code(answer)) == (403, "UPSTREAM_NOT_ALLOWED")
    assert rig.upstream.requests("/elsewhere") == []


def test_an_auth_endpoint_that_fails_is_an_upstream_error(rig: Rig, hasty: Rig) -> None:
    answer = rig.connect("broken", upstream_url=rig.script([], before_headers=[CUT]))
    assert (answer.status_code, error_code(answer)) == (502, "UPSTREAM_ERROR")
    answer = hasty.connect("slow", upstream_url=hasty.script([], before_headers=[HANG]))
    assert (answer.status_code, error_code(answer)) == (504, "UPSTREAM_TIMEOUT")


def test_an_empty_session_id_is_refused(rig: Rig) -> None:
    answer = rig.connect("")
    assert answer.status_code == 400


def test_a_session_collects_the_responses_of_a_conversation(rig: Rig) -> None:
    """3: the whole flow: connect, append, read, append, reconnect."""
    url = rig.connect("conversation").headers["location"]
    for number in (1, 2):
        answer = rig.append(url, rig.script([b"turn %d" % number]))
        assert answer.headers["stream-response-id"] == str(number)
    fresh = rig.connect("conversation").headers["location"]
    assert rig.ended(fresh, 1).body == b"turn 1"
    assert rig.ended(fresh, 2).body == b"turn 2"


def test_a_deleted_session_begins_anew(rig: Rig) -> None:
    gate = threading.Event()
    url = rig.connect("reborn").headers["location"]
    rig.append(url, rig.script([b"old"]))
    rig.append(url, rig.script([b"old", gate]))
    assert rig.delete(stream_id(url)).status_code == 204
    gate.set()
    again = rig.connect("reborn")
    assert again.status_code == 201
    answer = rig.append(again.headers["location"], rig.script([b"new"]))
    assert answer.headers["stream-response-id"] == "1"
    assert rig.ended(again.headers["location"]).body == b"new"
    assert len({frame.response_id for frame in rig.frames(again.headers["location"])}) == 1
