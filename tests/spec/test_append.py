"""Base protocol, 5.2 and 5.3: append to a stream, and close it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.wire import Wire
from tests.spec.streams import BYTES, JSON, TEXT, Stream

DOCS = Path(__file__).parents[2] / "docs" / "protocol.md"


def test_another_content_type_is_409(stream: Stream) -> None:
    """5.2: Content-Type "MUST match the stream's existing content type when a body is provided. Servers MUST
    return 409 Conflict when the content type is valid but does not match"."""
    stream.create()
    for content_type in (JSON, BYTES, "text/html"):
        assert stream.post(b"{}", content_type).status == 409
    assert stream.read() == b""
    for content_type in ("text/plain", "TEXT/PLAIN", "text/plain; charset=utf-8"):
        assert stream.post(b"x", content_type).status == 204


def test_a_body_without_content_type_is_400(stream: Stream) -> None:
    """5.2: "400 Bad Request: Malformed request (invalid header syntax, missing Content-Type, …)"."""
    stream.create()
    assert stream.post(b"x", None).status == 400
    assert stream.post(b"x", "nonsense").status == 400
    assert stream.read() == b""


@pytest.mark.parametrize("content_type", [None, JSON, "nonsense", "application/x-www-form-urlencoded"])
def test_a_close_is_not_refused_for_its_content_type(stream: Stream, content_type: str | None) -> None:
    """5.2: "When the request body is empty, servers MUST NOT reject based on Content-Type"."""
    stream.create()
    assert stream.post(b"", content_type, stream_closed="true").status == 204
    assert stream.head().headers["stream-closed"] == "true"


def test_a_chunked_body_is_appended(stream: Stream) -> None:
    """5.2: "Servers SHOULD support HTTP/1.1 chunked encoding and HTTP/2 streaming semantics". (HTTP/2 comes
    with an ASGI server that speaks it.)"""
    stream.create()
    head = f"POST {stream.path} HTTP/1.1\r\nHost: test\r\nContent-Type: text/plain\r\n"
    with Wire(stream.port) as wire:
        wire.send(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n")
        wire.send(b"2;ext=1\r\nef\r\n0\r\n\r\n")
        assert wire.answer("POST").status == 204
        wire.send(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        assert wire.answer("POST").status == 400, "an empty body is empty in any encoding"
    assert stream.read() == b"abcdef"


@pytest.mark.parametrize(
    ("first", "second", "accepted"),
    [
        ("09", "10", True),
        ("a", "b", True),
        ("B", "a", True),
        ("a", "aa", True),
        ("z", "\xe9", True),
        ("2", "10", False),
        ("a", "B", False),
        ("aa", "a", False),
        ("\xe9", "z", False),
    ],
)
def test_sequences_compare_byte_by_byte(stream: Stream, first: str, second: str, accepted: bool) -> None:
    """5.2: "Stream-Seq values are opaque strings that MUST compare using simple byte-wise lexicographic
    ordering"."""
    stream.create()
    assert stream.post(b"1", stream_seq=first).status == 204
    assert stream.post(b"2", stream_seq=second).status == (204 if accepted else 409)
    assert stream.read() == (b"12" if accepted else b"1")


def test_the_scope_of_sequences_is_documented_and_is_the_stream(
    stream: Stream, new_stream: Callable[[], Stream]
) -> None:
    """5.2: "Servers MUST document the scope they enforce"."""
    assert "**`Stream-Seq`** is scoped per stream" in DOCS.read_text()
    other = new_stream()
    for created in (stream, other):
        created.create()
        created.append(b"x", stream_seq="5")
    assert stream.produce(b"y", "another writer", 0, 0, stream_seq="5").status == 409


@pytest.mark.parametrize("seq", ["b", "a", "B", ""])
def test_a_sequence_that_does_not_grow_is_409(stream: Stream, seq: str) -> None:
    """5.2: "If provided and less than or equal to the last appended sequence …, the server MUST return
    409"."""
    stream.create()
    stream.append(b"x", stream_seq="b")
    assert stream.post(b"y", stream_seq=seq).status == 409
    assert stream.read() == b"x"


def test_sequences_strictly_increase_also_across_appends_without_one(stream: Stream) -> None:
    """5.2: "Sequence numbers MUST be strictly increasing"."""
    stream.create()
    stream.append(b"1", stream_seq="a")
    stream.append(b"2")
    assert stream.post(b"3", stream_seq="a").status == 409
    stream.append(b"4", stream_seq="b")
    assert stream.post(b"", None, stream_closed="true", stream_seq="b").status == 409
    assert stream.read() == b"124"


def test_closing_again_is_204(stream: Stream) -> None:
    """5.2: "if the stream is already closed and the request includes Stream-Closed: true with an empty body,
    servers SHOULD return 204 No Content with Stream-Closed: true"; 5.3."""
    stream.create(b"data")
    answers = [stream.close() for _ in range(3)]
    for answer in answers:
        assert answer.status == 204
        assert answer.headers["stream-closed"] == "true"
        assert answer.next_offset == "0000000000000004"


def test_a_body_for_a_closed_stream_is_409_even_if_it_would_close(stream: Stream) -> None:
    """5.2: "if the stream is already closed and the request includes a body but no idempotent producer
    headers, servers MUST return 409 Conflict with Stream-Closed: true"."""
    stream.create(b"data", stream_closed="true")
    answer = stream.post(b"more", stream_closed="true")
    assert answer.status == 409
    assert answer.headers["stream-closed"] == "true"
    assert stream.read() == b"data"


def test_an_empty_body_is_400_unless_it_closes(stream: Stream) -> None:
    """5.2: "Servers MUST reject POST requests with an empty body … with 400 Bad Request, unless the
    Stream-Closed: true header is present"."""
    stream.create()
    assert stream.post(b"").status == 400
    assert stream.post(b"", None).status == 400
    assert stream.produce(b"", "p", 0, 0).status == 400
    with Wire(stream.port) as wire:
        wire.send(f"POST {stream.path} HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\n\r\n".encode())
        assert wire.answer("POST").status == 400, "no body at all"
    assert stream.close().status == 204


def test_an_append_to_a_closed_stream_is_told_so_and_where_it_ended(stream: Stream) -> None:
    """5.2: "When a client attempts to append to a closed stream …, servers MUST return: 409 Conflict status
    code, Stream-Closed: true header, Stream-Next-Offset: the final offset"."""
    stream.create(b"data")
    stream.close()
    answer = stream.post(b"more")
    assert answer.status == 409
    assert answer.headers["stream-closed"] == "true"
    assert answer.next_offset == "0000000000000004"


def test_closed_is_said_before_anything_else_that_is_wrong(stream: Stream) -> None:
    """5.2: "The recommended precedence is: Stream closed → Content type mismatch → Sequence regression"."""
    stream.create(b"data")
    stream.append(b"x", stream_seq="b")
    mismatch = stream.post(b"x", JSON, stream_seq="a")
    assert (mismatch.status, mismatch.error["code"]) == (409, "CONTENT_TYPE_CONFLICT")
    stream.close()
    closed = stream.post(b"x", JSON, stream_seq="a")
    assert (closed.status, closed.error["code"]) == (409, "STREAM_CLOSED")
    assert closed.headers["stream-closed"] == "true"


def test_other_conflicts_do_not_say_closed(stream: Stream) -> None:
    """5.2: clients tell "closed" from other conflicts by the Stream-Closed header."""
    stream.create()
    stream.append(b"x", stream_seq="b")
    assert "stream-closed" not in stream.post(b"x", JSON).headers
    assert "stream-closed" not in stream.post(b"x", stream_seq="a").headers


def test_an_append_is_204_and_tells_the_new_tail(stream: Stream) -> None:
    """5.2: "204 No Content: Append successful"; "Stream-Next-Offset: The new tail offset after the
    append"."""
    stream.create()
    answer = stream.post(b"data")
    assert answer.status == 204
    assert answer.next_offset == stream.head().next_offset == "0000000000000004"
    assert "stream-closed" not in answer.headers
    assert stream.post(b"end", stream_closed="true").headers["stream-closed"] == "true"


def test_a_missing_stream_is_404(stream: Stream) -> None:
    """5.2: "404 Not Found: Stream does not exist"; 5.3."""
    assert stream.post(b"data", TEXT).status == 404
    assert stream.close().status == 404


def test_a_body_beyond_the_limit_is_413(stream: Stream) -> None:
    """5.2: "413 Payload Too Large: Request body exceeds server limits"."""
    stream.create()
    assert stream.post(b"x" * ((1 << 20) + 1)).status == 413
    assert stream.post(b"x" * (1 << 20)).status == 204
    assert len(stream.read()) == 1 << 20


def test_closing_without_data_leaves_the_tail(stream: Stream) -> None:
    """5.3: "Stream-Next-Offset: The tail offset (unchanged, since no data was appended)"."""
    stream.create(b"data")
    answer = stream.close()
    assert answer.status == 204
    assert answer.next_offset == "0000000000000004"
    assert answer.headers["stream-closed"] == "true"


def test_a_deletion_is_204_once(stream: Stream) -> None:
    """5.4: "204 No Content: Stream deleted successfully; 404 Not Found: Stream does not exist"."""
    stream.create(b"data")
    assert [stream.delete().status, stream.delete().status] == [204, 404]
    assert [stream.head().status, stream.get().status, stream.post(b"x").status] == [404, 404, 404]
