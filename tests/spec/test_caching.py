"""Base protocol, 8: caching and collapsing."""

import time

import pytest

from perennial.protocol.cursors import EPOCH_MS, INTERVAL_SECONDS
from tests.spec.streams import Stream


def test_shared_data_may_be_cached_for_a_minute(stream: Stream) -> None:
    """8.1: "For shared, non-user-specific streams, servers SHOULD return:" Cache-Control: public, max-age=60,
    stale-while-revalidate=300."""
    stream.create(b"data")
    expected = "public, max-age=60, stale-while-revalidate=300"
    assert stream.get().headers["cache-control"] == expected
    assert stream.long_poll("-1").headers["cache-control"] == expected


def test_data_behind_a_token_is_private(guarded_stream: Stream) -> None:
    """8.1: for user-specific or confidential streams servers SHOULD use "private instead of public"; 10.2:
    access controls hold even with shared caches."""
    guarded_stream.create(b"data")
    assert guarded_stream.get().headers["cache-control"].startswith("private, ")
    assert guarded_stream.long_poll("-1").headers["cache-control"].startswith("private, ")


def test_nothing_is_cached_longer_than_the_stream_may_live(stream: Stream) -> None:
    """5.6: "Cache-Control: Derived from TTL/expiry (see Section 8)"."""
    stream.create(b"data", stream_ttl="10")
    value = stream.get().headers["cache-control"]
    assert value in (
        "public, max-age=10, stale-while-revalidate=0",
        "public, max-age=9, stale-while-revalidate=0",
    )


def test_every_read_has_an_etag_except_now(stream: Stream) -> None:
    """8.1: servers MUST generate "ETag headers for GET responses, except for offset=now responses"."""
    tail = stream.create(b"data").next_offset
    for answer in (stream.get(), stream.get("-1"), stream.get(tail)):
        assert answer.headers["etag"].startswith('"')
        assert answer.headers["etag"].endswith('"')
    assert "etag" not in stream.get("now").headers


def test_a_known_etag_is_304_without_a_body(stream: Stream) -> None:
    """8.1: "When a client provides a valid If-None-Match header that matches the current ETag, servers MUST
    respond with 304 Not Modified (with no body)"."""
    tail = stream.create(b"data").next_offset
    first = stream.get().headers["etag"]
    for offset in ("-1", tail):
        etag = stream.get(offset).headers["etag"]
        answer = stream.get(offset, if_none_match=etag)
        assert (answer.status, answer.body) == (304, b"")
        assert answer.headers["etag"] == etag
        assert answer.next_offset == tail
    stream.append(b"more")
    assert stream.get("-1", if_none_match=first).status == 200


def test_a_close_changes_the_etag(stream: Stream) -> None:
    """8.1: "ETags MUST vary with the stream's closure status. When a stream is closed (without new data
    being appended), the ETag MUST change"; "Implementations SHOULD include a closure indicator in the ETag
    format"."""
    tail = stream.create(b"data").next_offset
    before = {offset: stream.get(offset).headers["etag"] for offset in ("-1", tail)}
    stream.close()
    for offset, etag in before.items():
        answer = stream.get(offset, if_none_match=etag)
        assert answer.status == 200
        assert answer.headers["stream-closed"] == "true"
        assert answer.headers["etag"].endswith(':c"')


def test_live_answers_have_cursors_that_count_intervals(stream: Stream) -> None:
    """8.1: "servers MUST generate cursors on all live mode responses: Long-poll: Stream-Cursor response
    header; SSE: streamCursor field in control events"; intervals of 20 s since October 9, 2024."""
    tail = stream.create(b"data").next_offset
    now = int(time.time() * 1000 - EPOCH_MS) // (INTERVAL_SECONDS * 1000)
    cursors = [
        stream.long_poll("-1").headers["stream-cursor"],
        stream.long_poll(tail).headers["stream-cursor"],
    ]
    for offset in ("-1", tail):
        with stream.sse(offset) as events:
            cursors += [e.control["streamCursor"] for e in events.until_up_to_date() if e.kind == "control"]
    assert len(cursors) == 4
    assert all(int(cursor) in (now, now + 1) for cursor in cursors)


@pytest.mark.parametrize("ahead", [0, 1, 100_000])
def test_cursors_never_go_back(stream: Stream, ahead: int) -> None:
    """8.1: "Servers MUST ensure cursors never go backwards. When a client provides a cursor … greater than
    or equal to the current interval number, the server MUST return a cursor strictly greater than the
    client's cursor"."""
    tail = stream.create(b"data").next_offset
    cursor = int(stream.long_poll("-1").headers["stream-cursor"]) + ahead
    answers = [stream.long_poll("-1", str(cursor)), stream.long_poll(tail, str(cursor))]
    for answer in answers:
        assert cursor < int(answer.headers["stream-cursor"]) <= cursor + 3600 // INTERVAL_SECONDS
    with stream.sse("-1", str(cursor)) as events:
        _, first = events.until_up_to_date()
        stream.append(b"more")
        _, second = events.until_up_to_date()
    assert cursor < int(first.control["streamCursor"]) <= int(second.control["streamCursor"])


def test_an_old_cursor_is_brought_up_to_date(stream: Stream) -> None:
    """8.1: "For each live response, the server calculates the current interval number and returns it"."""
    stream.create(b"data")
    assert (
        stream.long_poll("-1", "5").headers["stream-cursor"]
        == stream.long_poll("-1").headers["stream-cursor"]
    )


def test_empty_answers_are_not_cached(stream: Stream) -> None:
    """8.1: caches should not store 204 responses; an empty read at the tail would hide what comes next."""
    tail = stream.create(b"data").next_offset
    assert stream.get(tail).headers["cache-control"] == "no-store"
    assert stream.long_poll(tail).headers["cache-control"] == "no-store"
