"""Base protocol, 5.1: create a stream."""

import time

import pytest

from perennial.protocol.headers import format_instant
from tests.spec.streams import BYTES, JSON, TEXT, ZERO, Stream

FUTURE = "2090-01-15T12:00:00Z"


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ({}, {}),
        ({"stream_ttl": "3600"}, {"stream_ttl": "3600"}),
        ({"stream_expires_at": FUTURE}, {"stream_expires_at": FUTURE}),
        ({"stream_expires_at": FUTURE}, {"stream_expires_at": "2090-01-15T13:00:00.000+01:00"}),
        ({"content_type": "text/plain; charset=utf-8"}, {"content_type": "TEXT/plain"}),
        ({"stream_closed": "true"}, {"stream_closed": "TRUE"}),
    ],
)
def test_an_equal_configuration_is_200(stream: Stream, first: dict[str, str], again: dict[str, str]) -> None:
    """5.1: "If the stream already exists, the server MUST … return 200 OK if the existing stream's
    configuration (content type, TTL/expiry, and closure status) matches the request"."""
    assert stream.put(b"once", None, **{"content_type": TEXT} | first).status == 201
    answer = stream.put(b"twice", None, **{"content_type": TEXT} | again)
    assert answer.status == 200
    assert stream.read() == b"once", "a 200 appends nothing"


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ({}, {"content_type": JSON}),
        ({"stream_ttl": "3600"}, {}),
        ({}, {"stream_ttl": "3600"}),
        ({"stream_ttl": "3600"}, {"stream_ttl": "3601"}),
        ({"stream_ttl": "3600"}, {"stream_expires_at": FUTURE}),
        ({"stream_expires_at": FUTURE}, {"stream_expires_at": "2090-01-15T12:00:01Z"}),
    ],
)
def test_another_configuration_is_409(stream: Stream, first: dict[str, str], again: dict[str, str]) -> None:
    """5.1: "… or return 409 Conflict if it does not"."""
    assert stream.put(b"", None, **{"content_type": TEXT} | first).status == 201
    assert stream.put(b"", None, **{"content_type": TEXT} | again).status == 409


@pytest.mark.parametrize(
    ("closed", "asks_for_closed", "status"),
    [(False, False, 200), (True, False, 409), (True, True, 200), (False, True, 409)],
)
def test_closure_is_part_of_the_configuration(
    stream: Stream, closed: bool, asks_for_closed: bool, status: int
) -> None:
    """5.1: the server compares Stream-Closed in the request with the stream's current closure status."""
    stream.create()
    if closed:
        stream.close()
    headers = {"stream_closed": "true"} if asks_for_closed else {}
    answer = stream.put(**headers)
    assert answer.status == status
    if status == 200:
        assert ("stream-closed" in answer.headers) == closed


@pytest.mark.parametrize("ttl", ["0", "1", "3600", "9007199254740991"])
def test_a_ttl_is_a_plain_decimal(stream: Stream, ttl: str) -> None:
    """5.1: Stream-TTL: "The value MUST be a non-negative integer in decimal notation …"."""
    assert stream.put(stream_ttl=ttl).status == 201


@pytest.mark.parametrize(
    "ttl", ["+3600", "03600", "3600.0", "3.6e3", "-1", "", "abc", "00", "0x10", "60 s", "9007199254740992"]
)
def test_any_other_ttl_is_400_and_creates_nothing(stream: Stream, ttl: str) -> None:
    """5.1: "… without leading zeros, plus signs, decimal points, or scientific notation"; 400 "Invalid
    headers"."""
    assert stream.put(stream_ttl=ttl).status == 400
    assert stream.head().status == 404


@pytest.mark.parametrize(
    "instant", ["2090-01-15T12:00:00Z", "2090-01-15T12:00:00.123Z", "2090-01-15T12:00:00+01:00"]
)
def test_an_expiry_is_an_rfc_3339_time(stream: Stream, instant: str) -> None:
    """5.1: Stream-Expires-At "Sets an absolute expiry time as an RFC 3339 timestamp"."""
    assert stream.put(stream_expires_at=instant).status == 201


@pytest.mark.parametrize("instant", ["", "tomorrow", "2090-01-15", "2090-01-15T12:00:00", "3789547200"])
def test_any_other_expiry_is_400(stream: Stream, instant: str) -> None:
    """5.1: "400 Bad Request: Invalid headers or parameters"."""
    assert stream.put(stream_expires_at=instant).status == 400
    assert stream.head().status == 404


def test_ttl_and_expiry_together_are_400(stream: Stream) -> None:
    """5.1: "If both Stream-TTL and Stream-Expires-At are supplied, servers SHOULD reject the request with
    400"."""
    assert stream.put(stream_ttl="60", stream_expires_at=FUTURE).status == 400
    assert stream.head().status == 404


def test_201_says_where_the_stream_is(stream: Stream) -> None:
    """5.1: "Servers SHOULD include a Location header equal to {stream-url} in 201 Created responses"."""
    assert stream.create(b"").headers["location"] == f"http://test{stream.path}"
    assert "location" not in stream.put().headers, "on 201 only"


def test_created_streams_tell_their_type_tail_and_closure(stream: Stream) -> None:
    """5.1: response headers on 201 and 200: Content-Type, Stream-Next-Offset, and Stream-Closed if closed."""
    for status in (201, 200):
        answer = stream.put(b"hello", "text/plain; charset=utf-8", stream_closed="true")
        assert answer.status == status
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.next_offset == "0000000000000005"
        assert answer.headers["stream-closed"] == "true"


def test_an_open_stream_does_not_say_closed(stream: Stream) -> None:
    """5.1: "Stream-Closed: true: Present when the stream was created in the closed state"."""
    assert "stream-closed" not in stream.create().headers


def test_the_default_type_is_bytes(stream: Stream) -> None:
    """5.1: "If omitted, the server MAY default to application/octet-stream"."""
    assert stream.put(b"", None).headers["content-type"] == BYTES
    assert stream.head().headers["content-type"] == BYTES


@pytest.mark.parametrize("body", [b"", b"the whole content"])
def test_a_stream_may_be_created_closed(stream: Stream, body: bytes) -> None:
    """5.1: "When present, the stream is created in the closed state. Any body provided becomes the complete
    and final content of the stream"."""
    stream.create(body, stream_closed="true")
    answer = stream.get()
    assert answer.body == body
    assert answer.headers["stream-closed"] == "true"
    assert stream.post(b"more").status == 409


def test_a_body_is_the_first_content(stream: Stream) -> None:
    """5.1: "Initial stream bytes. If provided, these bytes form the first content of the stream"."""
    stream.create(b"first ")
    stream.append(b"second")
    assert stream.read() == b"first second"
    assert stream.get().next_offset > ZERO


def test_lifetimes_end(stream: Stream) -> None:
    """4: "bytes persist until the stream is deleted or expired"; 5.1: TTL and absolute expiry."""
    windowed, absolute = stream, Stream(stream.port, stream.path.rpartition("/")[2] + "-absolute")
    windowed.create(b"data", stream_ttl="1")
    absolute.create(b"data", stream_expires_at=format_instant(int(time.time() * 1000) + 1000))
    started = time.monotonic()
    assert windowed.head().status == absolute.head().status == 200
    while 200 in (windowed.head().status, absolute.head().status):
        assert time.monotonic() - started < 5
        time.sleep(0.05)
    assert time.monotonic() - started > 0.8
    for ended in (windowed, absolute):
        assert [ended.get().status, ended.post(b"x").status, ended.delete().status] == [404, 404, 404]
        assert ended.put().status == 201
