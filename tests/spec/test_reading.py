"""Base protocol, 5.5 and 5.6: metadata, and catch-up reads."""

import json

import pytest

from tests.spec.conftest import CHUNK_BYTES
from tests.spec.streams import JSON, ZERO, Stream


def test_metadata_is_never_cached(stream: Stream) -> None:
    """5.5: "Servers SHOULD make HEAD responses effectively non-cacheable, for example by returning
    Cache-Control: no-store"; 10.7: "Servers SHOULD include this header on HEAD responses"."""
    stream.create()
    assert stream.head().headers["cache-control"] == "no-store"


def test_metadata_tells_type_tail_lifetime_and_closure(stream: Stream) -> None:
    """5.5: response headers on 200."""
    stream.create(b"data", "text/plain; charset=utf-8", stream_ttl="3600")
    headers = stream.head().headers
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert headers["stream-next-offset"] == "0000000000000004"
    assert headers["stream-ttl"] == "3600"
    assert "stream-expires-at" not in headers
    assert "stream-closed" not in headers
    stream.content_type = "text/plain"
    stream.close()
    assert stream.head().headers["stream-closed"] == "true"


def test_metadata_tells_an_absolute_expiry(stream: Stream) -> None:
    """5.5: "Stream-Expires-At: <rfc3339> (optional): Absolute expiry time, if applicable"."""
    stream.create(stream_expires_at="2090-01-15T13:00:00+01:00")
    assert stream.head().headers["stream-expires-at"] == "2090-01-15T12:00:00.000Z"


def test_metadata_of_nothing_is_404(stream: Stream) -> None:
    """5.5: "404 Not Found: Stream does not exist"."""
    answer = stream.head()
    assert answer.status == 404
    assert answer.body == b""


@pytest.mark.parametrize("offset", [None, "-1", ZERO])
def test_a_read_without_offset_begins_at_the_beginning(stream: Stream, offset: str | None) -> None:
    """5.6: offset: "If omitted, defaults to the stream start (offset -1)"."""
    stream.create(b"data")
    assert stream.get(offset).body == b"data"


def test_any_offset_that_was_given_can_be_resumed(stream: Stream) -> None:
    """5.6: "Returns bytes starting from the specified offset"."""
    stream.create()
    whole = b""
    for number in range(6):
        offset = stream.append(b"part %d," % number)
        whole += b"part %d," % number
        assert stream.get(offset).body == b""
        assert whole.endswith(stream.get(ZERO).body)
        assert stream.get(offset).next_offset == offset


def test_at_the_tail_there_is_nothing_and_the_offset_stays(stream: Stream) -> None:
    """5.6: a read at the tail is 200 with an empty body, and Stream-Next-Offset equals the requested
    offset."""
    tail = stream.create(b"data").next_offset
    answer = stream.get(tail)
    assert (answer.status, answer.body, answer.next_offset) == (200, b"", tail)
    assert answer.headers["stream-up-to-date"] == "true"
    assert "stream-closed" not in answer.headers


def test_at_the_tail_of_a_closed_stream_the_end_is_told(stream: Stream) -> None:
    """5.6: "If the stream is closed, this response MUST also include Stream-Closed: true to signal EOF"."""
    tail = stream.create(b"data", stream_closed="true").next_offset
    answer = stream.get(tail)
    assert (answer.status, answer.body, answer.next_offset) == (200, b"", tail)
    assert answer.headers["stream-closed"] == "true"


def test_a_response_with_everything_says_so(stream: Stream) -> None:
    """5.6: Stream-Up-To-Date "MUST be present and set to true when the response includes all data available
    in the stream at the time the response was generated"."""
    stream.create()
    assert stream.get().headers["stream-up-to-date"] == "true"
    stream.append(b"data")
    assert stream.get().headers["stream-up-to-date"] == "true"


def test_a_part_does_not_pass_for_everything(stream: Stream) -> None:
    """5.6: Stream-Up-To-Date "SHOULD NOT be present when returning partial data due to server-defined chunk
    size limits"; Stream-Closed "SHOULD NOT be present when returning partial data from a closed stream"."""
    whole = bytes(range(256)) * 20
    stream.create(whole, stream_closed="true")
    offset, pieces = "-1", []
    while True:
        answer = stream.get(offset)
        pieces.append(answer.body)
        assert len(answer.body) <= CHUNK_BYTES
        offset = answer.next_offset
        at_end = int(offset) == len(whole)
        assert ("stream-up-to-date" in answer.headers) == at_end
        assert ("stream-closed" in answer.headers) == at_end
        if at_end:
            break
    assert b"".join(pieces) == whole
    assert len(pieces) == 5


def test_the_last_chunk_of_a_closed_stream_tells_the_end(stream: Stream) -> None:
    """5.6: Stream-Closed "MUST be present when the stream is closed and the client has reached the final
    offset": with the final chunk, and with an empty body at the tail."""
    stream.create(b"x" * (CHUNK_BYTES + 10), stream_closed="true")
    first = stream.get()
    assert "stream-closed" not in first.headers
    last = stream.get(first.next_offset)
    assert last.headers["stream-closed"] == "true"
    assert stream.get(last.next_offset).headers["stream-closed"] == "true"


def test_closure_after_the_last_chunk_is_found_at_the_next_offset(stream: Stream) -> None:
    """5.6: "Clients discover closure by requesting the next offset …, which returns an empty body with
    Stream-Closed: true"."""
    stream.create(b"data")
    served = stream.get()
    assert "stream-closed" not in served.headers
    stream.close()
    answer = stream.get(served.next_offset)
    assert answer.body == b""
    assert answer.headers["stream-closed"] == "true"


def test_a_json_read_is_paged_between_messages(stream: Stream) -> None:
    """5.6: up to a maximum chunk size; 7.1: message boundaries are preserved."""
    stream.create(b"[]", JSON)
    stream.append(b"[" + b",".join(b'{"n":%d}' % n for n in range(400)) + b"]")
    found: list[object] = []
    offset = "-1"
    while True:
        answer = stream.get(offset)
        found += json.loads(answer.body)
        offset = answer.next_offset
        if "stream-up-to-date" in answer.headers:
            break
    assert found == [{"n": n} for n in range(400)]


@pytest.mark.parametrize(
    "offset", ["", "abc", "-2", "NOW", "1", "0000000000000000x", "%00", "0,0", "../..", "%0a"]
)
def test_a_malformed_offset_is_400(stream: Stream, offset: str) -> None:
    """5.6: "400 Bad Request: Malformed offset or invalid parameters"."""
    stream.create(b"data")
    assert stream.get(offset).status == 400


def test_reading_nothing_is_404(stream: Stream) -> None:
    """5.6, 5.7, 5.8: "404 Not Found: Stream does not exist"."""
    for query in ("", "?offset=-1", "?offset=now", "?offset=-1&live=long-poll", "?offset=now&live=sse"):
        assert stream.ask("GET", query).status == 404, query
