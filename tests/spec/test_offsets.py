"""Base protocol, 6: offsets and their sentinels."""

import time

import pytest

from tests.spec.conftest import LONG_POLL_SECONDS
from tests.spec.streams import BYTES, JSON, TEXT, Stream


def test_offsets_grow_with_every_append(stream: Stream) -> None:
    """6: "Offsets assigned to appended data MUST be lexicographically greater than all previously assigned
    offsets. Server implementations MUST NOT use schemes … that can produce duplicate or non-monotonic
    offsets"; "No two positions MAY share the same offset"."""
    offsets = [stream.create().next_offset]
    offsets += [stream.append(b"x" * size) for size in (1, 1, 9, 90, 900, 9000, 1, 1)]
    assert offsets == sorted(offsets)
    assert len(set(offsets)) == len(offsets)


def test_offsets_stay_valid(stream: Stream) -> None:
    """6: "Persistent: Offsets remain valid for the lifetime of the stream"."""
    stream.create()
    offsets = [stream.append(b"%d" % number) for number in range(10)]
    stream.close()
    for number, offset in enumerate(offsets):
        assert stream.get(offset).body == b"".join(b"%d" % later for later in range(number + 1, 10))


def test_offsets_are_short_and_fit_into_a_url(stream: Stream) -> None:
    """6: offsets MUST NOT contain ",", "&", "=", "?" or "/"; "Servers SHOULD use URL-safe characters";
    "Servers SHOULD keep offsets reasonably short (under 256 characters)"."""
    offset = stream.create(b"data").next_offset
    assert offset.isascii()
    assert offset.isalnum()
    assert len(offset) < 256


def test_minus_one_is_the_beginning(stream: Stream) -> None:
    """6: "Servers MUST recognize -1 as a valid offset that returns data from the beginning of the stream"."""
    stream.create(b"data")
    assert stream.get("-1").body == b"data"
    assert stream.long_poll("-1").body == b"data"
    with stream.sse("-1") as events:
        assert events.next().data == "data"


@pytest.mark.parametrize(("content_type", "body"), [(JSON, b"[]"), (TEXT, b""), (BYTES, b"")])
def test_now_is_the_tail_and_carries_no_data(stream: Stream, content_type: str, body: bytes) -> None:
    """6: offset=now: "Servers MUST return 200 OK with an empty response body appropriate to the stream's
    content type: For application/json streams: the body MUST be []; For all other content types: the body
    MUST be 0 bytes"; "The response MUST contain no data messages, regardless of stream content"."""
    stream.create(b"[1,2]", content_type)
    answer = stream.get("now")
    assert (answer.status, answer.body) == (200, body)


def test_now_tells_the_tail_and_is_not_cached(stream: Stream) -> None:
    """6: "Servers MUST include a Stream-Next-Offset header set to the current tail position"; "Servers MUST
    include Stream-Up-To-Date: true header"; "Servers SHOULD return Cache-Control: no-store"; 8.1: no
    ETag."""
    tail = stream.create(b"data").next_offset
    answer = stream.get("now")
    assert answer.next_offset == tail
    assert answer.headers["stream-up-to-date"] == "true"
    assert answer.headers["cache-control"] == "no-store"
    assert "etag" not in answer.headers
    assert "stream-closed" not in answer.headers


def test_a_poll_from_now_waits_for_what_comes(stream: Stream) -> None:
    """6: offset=now&live=long-poll: "Servers MUST immediately begin waiting for new data (no initial empty
    response)"."""
    stream.create(b"old")
    with stream.waiting("?offset=now&live=long-poll") as wire:
        while wire.is_quiet(0.01):  # until the request has been seen, appends pass it by
            stream.append(b"new")
        answer = wire.answer()
    assert answer.status == 200
    assert answer.body.replace(b"new", b"") == b""
    assert answer.headers["cache-control"] == "no-store", "another reader's now is another"
    assert "etag" not in answer.headers


def test_a_poll_from_now_that_hears_nothing_tells_the_tail(stream: Stream) -> None:
    """6: "If the timeout expires, servers return 204 No Content with Stream-Up-To-Date: true; The
    Stream-Next-Offset header MUST be set to the tail position"."""
    tail = stream.create(b"old").next_offset
    answer = stream.long_poll("now")
    assert answer.status == 204
    assert answer.next_offset == tail
    assert answer.headers["stream-up-to-date"] == "true"


def test_events_from_now_begin_at_the_tail(stream: Stream) -> None:
    """6: offset=now&live=sse: "Servers MUST immediately begin the SSE stream from the tail position; The
    first control event MUST include the tail offset in streamNextOffset; If no data has arrived, the first
    control event MUST include upToDate: true"; no historical data is sent."""
    tail = stream.create(b"old").next_offset
    with stream.sse("now") as events:
        first = events.next()
        assert first.control["streamNextOffset"] == tail
        assert first.control["upToDate"] is True
        stream.append(b"new")
        assert events.next().data == "new"


@pytest.mark.parametrize(("content_type", "body"), [(JSON, b"[]"), (TEXT, b"")])
def test_now_on_a_closed_stream_tells_the_end_at_once(stream: Stream, content_type: str, body: bytes) -> None:
    """6: offset=now on a closed stream: "Regardless of the live parameter, servers MUST return immediately
    with the closure signal; The response MUST include Stream-Closed: true and Stream-Up-To-Date: true
    headers; The Stream-Next-Offset header MUST be set to the stream's final (tail) offset"."""
    tail = stream.create(b"[1,2]", content_type, stream_closed="true").next_offset
    started = time.monotonic()
    caught_up, polled = stream.get("now"), stream.long_poll("now")
    with stream.sse("now") as events:
        (control,) = events.rest()
    assert time.monotonic() - started < LONG_POLL_SECONDS
    assert (caught_up.status, caught_up.body) == (200, body)
    assert (polled.status, polled.body) == (204, b"")
    for headers in (caught_up.headers, polled.headers, events.headers):
        assert headers["stream-closed"] == "true"
        assert headers["stream-up-to-date"] == "true"
        assert headers["stream-next-offset"] == tail
    assert control.control == {"streamNextOffset": tail, "upToDate": True, "streamClosed": True}


def test_sentinels_are_never_minted(stream: Stream) -> None:
    """6: "Server implementations MUST NOT generate these strings [-1 and now] as actual stream offsets (in
    Stream-Next-Offset headers or SSE control events)"."""
    minted = [stream.create().next_offset, stream.head().next_offset]
    for offset in ("-1", "now"):
        minted += [stream.get(offset).next_offset, stream.long_poll(offset).next_offset]
        with stream.sse(offset) as events:
            minted.append(events.next().control["streamNextOffset"])
    minted.append(stream.close().next_offset)
    assert set(minted) == {"0000000000000000"}
