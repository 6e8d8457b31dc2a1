"""Forks, as today's protocol has them; the base document does not know them: creation, reads, lifetime."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.spec.streams import BYTES, JSON, TEXT, ZERO, Stream

New = Callable[[], Stream]


def fork(target: Stream, source: Stream, body: bytes = b"", **headers: str) -> int:
    """The status of a PUT that forks; the content type is left out."""
    return target.put(body, None, stream_forked_from=source.path, **headers).status


def test_a_fork_has_everything_before_its_offset(stream: Stream, new_stream: New) -> None:
    """Forks: inherit everything before Stream-Fork-Offset; default: the source's tail."""
    middle = stream.create(b"abc").next_offset
    stream.append(b"def")
    whole, part, nothing = new_stream(), new_stream(), new_stream()
    assert fork(whole, stream) == fork(part, stream, stream_fork_offset=middle) == 201
    assert fork(nothing, stream, stream_fork_offset=ZERO) == 201
    assert [whole.read(), part.read(), nothing.read()] == [b"abcdef", b"abc", b""]


def test_fork_headers_appear_in_no_response(stream: Stream, new_stream: New) -> None:
    """Forks: the extra headers are the request's alone."""
    stream.create(b"abc")
    target = new_stream()
    answers = [target.put(b"", None, stream_forked_from=stream.path, stream_fork_offset=ZERO)]
    answers += [target.head(), target.get()]
    for answer in answers:
        assert not any(name.startswith("stream-fork") for name in answer.headers)


def test_a_fork_goes_its_own_way(stream: Stream, new_stream: New) -> None:
    """Forks: later appends or closure of the source are invisible; offsets are shared and go on."""
    tail = stream.create(b"abc").next_offset
    target = new_stream()
    assert fork(target, stream, b"own ") == 201
    stream.append(b"source's")
    stream.close()
    assert target.append(b"more") == "0000000000000011"
    assert target.read() == b"abcown more"
    assert target.get(tail).body == b"own more"
    assert "stream-closed" not in target.head().headers
    assert stream.read() == b"abcsource's"


def test_a_fork_of_json_is_one_array_across_the_boundary(stream: Stream, new_stream: New) -> None:
    """Forks: reads stitch inherited and own data in one response."""
    stream.create(b"[1,2]", JSON)
    target = new_stream()
    assert fork(target, stream, b"[3]") == 201
    assert target.head().headers["content-type"] == JSON
    assert target.get().body == b"[1,2,3]"


def test_a_sub_offset_reaches_into_the_next_append(stream: Stream, new_stream: New) -> None:
    """Forks: Stream-Fork-Sub-Offset counts bytes of byte streams and messages of JSON streams; forks of
    forks compose."""
    stream.create(b"abcdef")
    four, two = new_stream(), new_stream()
    assert fork(four, stream, stream_fork_offset=ZERO, stream_fork_sub_offset="4") == 201
    assert fork(two, four, stream_fork_offset=ZERO, stream_fork_sub_offset="2") == 201
    assert [four.read(), two.read()] == [b"abcd", b"ab"]
    messages, first = new_stream(), new_stream()
    messages.create(b'["one","two","three"]', JSON)
    assert fork(first, messages, stream_fork_offset=ZERO, stream_fork_sub_offset="2") == 201
    assert json.loads(first.get().body) == ["one", "two"]


@pytest.mark.parametrize("sub_offset", ["-1", "abc", "1.5", "05", "+1", "", "7"])
def test_a_bad_sub_offset_is_400(stream: Stream, new_stream: New, sub_offset: str) -> None:
    """Forks: malformed, or past the end of the append there."""
    stream.create(b"abcdef")
    target = new_stream()
    assert fork(target, stream, stream_fork_offset=ZERO, stream_fork_sub_offset=sub_offset) == 400
    assert target.head().status == 404


@pytest.mark.parametrize("offset", ["-1", "now", "", "abc", "0000000000000007", "9999999999999999"])
def test_a_bad_fork_offset_is_400(stream: Stream, new_stream: New, offset: str) -> None:
    """Forks: malformed, a sentinel, or beyond the source's tail."""
    stream.create(b"abcdef")
    assert fork(new_stream(), stream, stream_fork_offset=offset) == 400


def test_a_fork_offset_inside_a_json_message_is_400(stream: Stream, new_stream: New) -> None:
    """Forks, Perennial's rule: a JSON fork begins between messages; a byte fork anywhere."""
    stream.create(b"[100,200]", JSON)
    assert fork(new_stream(), stream, stream_fork_offset="0000000000000001") == 400
    assert fork(new_stream(), stream, stream_fork_offset="0000000000000003") == 201


@pytest.mark.parametrize("header", ["stream_fork_offset", "stream_fork_sub_offset"])
def test_fork_details_without_a_source_are_400(stream: Stream, header: str) -> None:
    """Forks: Stream-Fork-Sub-Offset without Stream-Forked-From, even 0; Perennial's rule: the offset as
    well."""
    assert stream.put(**{header: "0" if "sub" in header else ZERO}).status == 400


def test_a_fork_needs_a_source_that_is_there(stream: Stream, new_stream: New) -> None:
    """Forks: a missing source is 404, a deleted one that other forks keep is 409."""
    target, other = new_stream(), new_stream()
    assert fork(target, stream) == 404
    stream.create(b"abc")
    assert fork(target, stream) == 201
    stream.delete()
    assert fork(other, stream) == 409


def test_a_fork_with_another_type_is_409_and_takes_no_reference(stream: Stream, new_stream: New) -> None:
    """Forks: Content-Type given and different from the source's; it must leave no reference on the source."""
    stream.create(b"abc")
    answer = new_stream().put(b"", JSON, stream_forked_from=stream.path)
    assert answer.status == 409
    stream.delete()
    assert stream.head().status == 404, "and not 410"


def test_the_same_fork_again_is_200(stream: Stream, new_stream: New) -> None:
    """Forks: idempotency compares the requested values; an omitted offset matches; 409 otherwise.
    Perennial's rule: the target is looked at first, so the answer holds when the source has moved on or is
    gone."""
    stream.create(b"abc")
    target = new_stream()
    assert fork(target, stream, stream_fork_offset=ZERO, stream_fork_sub_offset="2") == 201
    stream.append(b"def")
    stream.delete()
    assert fork(target, stream, stream_fork_offset=ZERO, stream_fork_sub_offset="2") == 200
    assert fork(target, stream, stream_fork_sub_offset="2") == 200
    assert fork(target, stream, stream_fork_offset=ZERO, stream_fork_sub_offset="3") == 409
    assert fork(target, stream, stream_fork_offset=ZERO) == 409
    assert target.put(b"", TEXT).status == 409, "a plain stream is another thing"


def test_a_fork_starts_without_producers_sequence_or_closure(stream: Stream, new_stream: New) -> None:
    """Forks: producer and Stream-Seq state are not inherited; a closed source may be forked, the fork
    starts open."""
    stream.create()
    stream.produce(b"abc", "p", 5, 0, stream_seq="z", stream_closed="true")
    target = new_stream()
    assert fork(target, stream) == 201
    assert target.produce(b"def", "p", 5, 0, stream_seq="a").status == 200
    assert target.read() == b"abcdef"


@pytest.mark.parametrize(
    ("source", "asked", "ttl", "expires"),
    [
        ({}, {}, None, None),
        ({"stream_ttl": "600"}, {}, "600", None),
        ({"stream_ttl": "600"}, {"stream_ttl": "6000"}, "6000", None),
        (
            {"stream_ttl": "600"},
            {"stream_expires_at": "2090-01-01T00:00:00Z"},
            None,
            "2090-01-01T00:00:00.000Z",
        ),
        ({"stream_expires_at": "2090-01-01T00:00:00Z"}, {}, None, "2090-01-01T00:00:00.000Z"),
        ({"stream_expires_at": "2090-01-01T00:00:00Z"}, {"stream_ttl": "60"}, "60", None),
    ],
)
def test_a_fork_has_the_lifetime_it_is_given_or_its_sources(
    stream: Stream,
    new_stream: New,
    source: dict[str, str],
    asked: dict[str, Any],
    ttl: str | None,
    expires: str | None,
) -> None:
    """Forks: lifetimes are independent; the source never caps the fork."""
    stream.create(b"abc", TEXT, **source)
    target = new_stream()
    assert fork(target, stream, **asked) == 201
    headers = target.head().headers
    assert (headers.get("stream-ttl"), headers.get("stream-expires-at")) == (ttl, expires)


def test_a_fork_may_be_created_closed(stream: Stream, new_stream: New) -> None:
    """Forks, Perennial's rule: Stream-Closed: true creates the fork closed."""
    stream.create(b"abc")
    target = new_stream()
    assert fork(target, stream, b"def", stream_closed="true") == 201
    assert target.get().headers["stream-closed"] == "true"
    assert target.read() == b"abcdef"


def test_a_deleted_source_is_gone_but_kept_for_its_forks(stream: Stream, new_stream: New) -> None:
    """Forks: DELETE with references is 204, then HEAD, GET, POST and DELETE are 410 and PUT 409; forks read
    on; the last fork takes its ancestors along, up the chain."""
    stream.create(b"abc")
    child, grandchild = new_stream(), new_stream()
    assert fork(child, stream, b"def") == fork(grandchild, child, b"ghi") == 201
    assert [stream.delete().status, child.delete().status] == [204, 204]
    for gone in (stream, child):
        statuses = [gone.head().status, gone.get().status, gone.post(b"x", TEXT).status, gone.delete().status]
        assert statuses == [410, 410, 410, 410]
        assert gone.put().status == 409
        assert gone.long_poll("now").status == 410
    assert grandchild.read() == b"abcdefghi"
    assert grandchild.delete().status == 204
    assert [stream.head().status, child.head().status, stream.put().status] == [404, 404, 201]


def test_live_reads_of_a_fork_cross_into_its_own_data(stream: Stream, new_stream: New) -> None:
    """Forks: a long-poll inside the inherited range answers at once; SSE delivers inherited, then own data,
    then waits on the fork alone."""
    middle = stream.create(b"abc").next_offset
    stream.append(b"def")
    target = new_stream()
    assert fork(target, stream, stream_fork_offset=middle) == 201
    assert target.long_poll("-1").body == b"abc"
    with target.sse("-1") as events:
        data, control = events.until_up_to_date()
        assert data.data == "abc"
        stream.append(b"source's")
        target.content_type = TEXT
        target.append(b"own")
        assert events.next().data == "own"
    assert control.control["streamNextOffset"] == middle


def test_the_pair_form_of_an_offset_is_understood(stream: Stream, new_stream: New) -> None:
    """Perennial's rule: the reference server's N_M form is read wherever an offset is, and never minted."""
    stream.create(b"abc", BYTES)
    assert stream.get(f"{ZERO}_0000000000000001").body == b"bc"
    assert fork(new_stream(), stream, stream_fork_offset=f"{ZERO}_{ZERO}") == 201
    assert fork(new_stream(), stream, stream_fork_offset="9999999999999999_9999999999999999") == 400
    assert "_" not in stream.get(f"{ZERO}_{ZERO}").next_offset
