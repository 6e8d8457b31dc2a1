"""Base protocol, 5.7: live reads by long-poll."""

import time

import pytest

from tests.spec.conftest import LONG_POLL_SECONDS
from tests.spec.streams import JSON, Stream


@pytest.mark.parametrize("mode", ["long-poll", "sse"])
def test_a_live_read_needs_an_offset(stream: Stream, mode: str) -> None:
    """5.7: offset "MUST be provided"; 5.8: offset (required)."""
    stream.create(b"data")
    assert stream.ask("GET", f"?live={mode}").status == 400


def test_data_that_is_there_is_answered_at_once_with_a_cursor(stream: Stream) -> None:
    """5.7: on 200 "Stream-Cursor: <cursor>: Servers MUST include this header"."""
    stream.create(b"data")
    answer = stream.long_poll("-1")
    assert (answer.status, answer.body) == (200, b"data")
    assert answer.headers["stream-cursor"].isdigit()
    assert answer.next_offset == "0000000000000004"
    assert answer.headers["stream-up-to-date"] == "true"
    assert answer.headers["content-type"] == "text/plain"


def test_a_live_answer_with_data_has_an_etag_like_any_read(stream: Stream) -> None:
    """5.7: on 200 "Same as catch-up reads (Section 5.6)"; 8.1: servers MUST generate ETag headers for GET
    responses, except for offset=now."""
    stream.create(b"data")
    assert stream.long_poll("-1").headers["etag"] == stream.get("-1").headers["etag"]


def test_data_that_comes_is_answered_when_it_comes(stream: Stream) -> None:
    """5.7: "200 OK: Data became available within the timeout"."""
    tail = stream.create(b"old").next_offset
    with stream.waiting(f"?offset={tail}&live=long-poll") as wire:
        stream.append(b"new")
        answer = wire.answer()
    assert (answer.status, answer.body) == (200, b"new")
    assert answer.headers["stream-cursor"].isdigit()


def test_a_timeout_is_204_and_says_where_the_reader_is(stream: Stream) -> None:
    """5.7: on 204: "Servers MUST include a Stream-Next-Offset header indicating the current tail offset";
    Stream-Up-To-Date: "Servers MUST include this header"; Stream-Cursor: "Servers MUST include this header
    when the stream is open"."""
    tail = stream.create(b"data").next_offset
    started = time.monotonic()
    answer = stream.long_poll(tail)
    assert time.monotonic() - started >= LONG_POLL_SECONDS * 0.9
    assert (answer.status, answer.body) == (204, b"")
    assert answer.next_offset == tail
    assert answer.headers["stream-up-to-date"] == "true"
    assert answer.headers["stream-cursor"].isdigit()
    assert "stream-closed" not in answer.headers
    assert answer.headers["cache-control"] == "no-store", "an empty answer must not be served again (8.1)"


def test_the_end_of_a_closed_stream_is_answered_at_once(stream: Stream) -> None:
    """5.7: "Servers MUST NOT wait for the long-poll timeout; Servers MUST immediately return 204 No Content
    with Stream-Closed: true and Stream-Up-To-Date: true"."""
    tail = stream.create(b"data", stream_closed="true").next_offset
    started = time.monotonic()
    answer = stream.long_poll(tail)
    assert time.monotonic() - started < LONG_POLL_SECONDS
    assert answer.status == 204
    assert answer.headers["stream-closed"] == "true"
    assert answer.headers["stream-up-to-date"] == "true"
    assert answer.next_offset == tail


def test_a_close_wakes_whoever_waits(stream: Stream) -> None:
    """5.7: Stream-Closed "MUST be present when the stream is closed … A 204 No Content with Stream-Closed:
    true indicates EOF"."""
    tail = stream.create(b"data").next_offset
    with stream.waiting(f"?offset={tail}&live=long-poll") as wire:
        stream.close()
        answer = wire.answer()
    assert answer.status == 204
    assert answer.headers["stream-closed"] == "true"
    assert answer.headers["stream-up-to-date"] == "true"


def test_a_final_append_wakes_with_data_and_end(stream: Stream) -> None:
    """5.7: a live 200 carries the headers of a catch-up read, Stream-Closed included (5.6)."""
    tail = stream.create(b"data").next_offset
    with stream.waiting(f"?offset={tail}&live=long-poll") as wire:
        stream.append(b"end", stream_closed="true")
        answer = wire.answer()
    assert (answer.status, answer.body) == (200, b"end")
    assert answer.headers["stream-closed"] == "true"


def test_a_deletion_wakes_whoever_waits(stream: Stream) -> None:
    """5.4: "In-flight reads may terminate with a 404 Not Found"."""
    tail = stream.create(b"data").next_offset
    with stream.waiting(f"?offset={tail}&live=long-poll") as wire:
        stream.delete()
        assert wire.answer().status == 404


def test_a_json_stream_is_polled_as_arrays(stream: Stream) -> None:
    """5.7, 7.1: "GET responses MUST return data as a JSON array"."""
    tail = stream.create(b"[1]", JSON).next_offset
    with stream.waiting(f"?offset={tail}&live=long-poll") as wire:
        stream.append(b"[2,3]")
        assert wire.answer().body == b"[2,3]"
