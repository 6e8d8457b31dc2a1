"""Ending early: abort and delete (sections 4.6, 4.8, 9.3)."""

import threading
import uuid

from perennial.protocol.frames import FrameType
from tests.proxy.harness import TOKEN, Rig, bearer, error_code, stream_id
from tests.upstream import HANG


def test_abort_cuts_the_upstream_and_keeps_what_arrived(rig: Rig) -> None:
    """4.6, 9.3: the upstream is cancelled, buffered data is flushed as Data, then an Abort frame follows."""
    path = f"/allowed/{uuid.uuid4().hex}"
    url = rig.create(rig.script([b"early ", 0.02, b"words", HANG], path=path)).headers["location"]
    rig.until_data(url, b"early words")
    answer = rig.abort(url)
    assert (answer.status_code, answer.content) == (204, b"")
    # The answer says that it has happened: no waiting here.
    kept = rig.kept(url)
    assert kept.body == b"early words"
    assert kept.ending is FrameType.ABORT
    assert kept.terminals[0].payload == b""
    assert rig.upstream.wait_for(path).peer_gone.wait(10)


def test_abort_flushes_what_still_waits_for_its_batch(rig: Rig) -> None:
    """9.3: any buffered data is flushed; data received before the abort is preserved and readable."""
    path = f"/allowed/{uuid.uuid4().hex}"
    url = rig.create(rig.script([b"a", 0.005, b"b", HANG], path=path)).headers["location"]
    exchange = rig.upstream.wait_for(path)
    while exchange.sent < 2:
        pass
    rig.until_data(url, b"a")
    rig.abort(url)
    kept = rig.kept(url)
    assert kept.body in (b"a", b"ab")
    assert kept.ending is FrameType.ABORT


def test_abort_ends_every_response_of_the_stream(rig: Rig) -> None:
    """4.6: cancels all active upstream connections; an Abort frame for each active response."""
    url = rig.create(rig.script([b"one", HANG])).headers["location"]
    for _ in range(3):
        rig.append(url, rig.script([b"more", HANG]))
    rig.append(url, rig.script([b"done"]))
    rig.ended(url, 5)
    assert rig.abort(url).status_code == 204
    assert [rig.kept(url, number).ending for number in range(1, 6)] == [FrameType.ABORT] * 4 + [
        FrameType.COMPLETE
    ]


def test_abort_is_idempotent(rig: Rig) -> None:
    """4.6: aborting a stream with no active upstream connections succeeds silently."""
    url = rig.create(rig.script([b"x"])).headers["location"]
    rig.ended(url)
    tail = rig.tail(url)
    assert [rig.abort(url).status_code for _ in range(3)] == [204] * 3
    assert rig.tail(url) == tail


def test_abort_takes_a_signature_and_nothing_else(rig: Rig) -> None:
    """4.6, 10.2: servers MUST require a pre-signed URL and MUST NOT fall back to service authentication."""
    url = rig.create(rig.script([b"x", HANG])).headers["location"]
    bare = f"{rig.url}/{stream_id(url)}"
    answer = rig.http.patch(f"{bare}?action=abort", headers=bearer(TOKEN))
    assert (answer.status_code, error_code(answer)) == (401, "MISSING_SIGNATURE")
    answer = rig.http.patch(f"{bare}?action=abort&expires=99999999999&signature=x", headers=bearer(TOKEN))
    assert (answer.status_code, error_code(answer)) == (401, "SIGNATURE_INVALID")
    assert rig.kept(url).ending is None
    rig.abort(url)


def test_abort_enforces_the_expiry(rig: Rig) -> None:
    """8.5: PATCH: the HMAC is validated and the expiry enforced."""
    url = rig.create(rig.script([b"x"]), headers={"Stream-Signed-URL-TTL": "0"}).headers["location"]
    threading.Event().wait(0.6)
    answer = rig.abort(url)
    assert (answer.status_code, error_code(answer)) == (401, "SIGNATURE_EXPIRED")


def test_only_abort_is_an_action(rig: Rig) -> None:
    """12.1: INVALID_ACTION, judged after the signature."""
    url = rig.create(rig.script([b"x"])).headers["location"]
    for query in ("", "&action=", "&action=pause"):
        answer = rig.http.patch(url + query)
        assert (answer.status_code, error_code(answer)) == (400, "INVALID_ACTION")
    answer = rig.http.patch(f"{rig.url}/{stream_id(url)}?action=pause")
    assert error_code(answer) == "MISSING_SIGNATURE"


def test_aborting_a_missing_stream_is_404(rig: Rig) -> None:
    url = rig.create(rig.script([b"x"])).headers["location"]
    rig.delete(stream_id(url))
    answer = rig.abort(url)
    assert (answer.status_code, error_code(answer)) == (404, "STREAM_NOT_FOUND")


def test_delete_removes_the_stream_and_aborts_its_upstreams(rig: Rig) -> None:
    """4.8: deletes the stream and aborts any in-flight upstream connections."""
    path = f"/allowed/{uuid.uuid4().hex}"
    url = rig.create(rig.script([b"x", HANG], path=path)).headers["location"]
    answer = rig.delete(stream_id(url))
    assert (answer.status_code, answer.content) == (204, b"")
    assert rig.upstream.wait_for(path).peer_gone.wait(10)
    assert rig.look(stream_id(url)).status_code == 404
    assert rig.read(url).status_code == 404


def test_delete_is_idempotent(rig: Rig) -> None:
    """4.8: deleting a non-existent stream returns 204 No Content."""
    url = rig.create(rig.script([b"x"])).headers["location"]
    assert [rig.delete(stream_id(url)).status_code for _ in range(2)] == [204, 204]
    assert rig.delete("never-there").status_code == 204


def test_delete_wants_service_authentication(rig: Rig) -> None:
    """4.8, 8.3: pre-signed URLs are not accepted; a pre-signed URL does NOT grant delete access."""
    url = rig.create(rig.script([b"x"])).headers["location"]
    answer = rig.http.delete(url)
    assert (answer.status_code, error_code(answer)) == (401, "MISSING_SECRET")
    assert error_code(rig.delete(stream_id(url), token="wrong")) == "INVALID_SECRET"
    assert rig.look(stream_id(url)).status_code == 200
