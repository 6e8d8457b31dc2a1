"""Base protocol, 5.8 and 8.2: live reads by Server-Sent Events."""

import base64
import json
import time

import pytest

from perennial.settings import Settings
from tests.spec.streams import BYTES, JSON, TEXT, ZERO, Stream


@pytest.mark.parametrize("content_type", [TEXT, JSON, BYTES, "image/png", "application/x-protobuf"])
def test_an_event_stream_says_it_is_one(stream: Stream, content_type: str) -> None:
    """5.8: "SSE responses MUST use Content-Type: text/event-stream in the HTTP response headers"."""
    stream.create(b"[1]", content_type)
    with stream.sse("-1") as events:
        assert events.headers["content-type"] == "text/event-stream"
        assert "content-length" not in events.headers


@pytest.mark.parametrize(
    "content_type", [BYTES, "image/png", "application/x-protobuf", "application/ndjson", "application/xml"]
)
def test_bytes_travel_as_base64_and_the_header_says_so(stream: Stream, content_type: str) -> None:
    """5.8: "For streams with any other content-type (binary streams), servers MUST automatically
    base64-encode data events and include the response header stream-sse-data-encoding: base64"."""
    payload = bytes(range(256))
    stream.create(payload, content_type)
    with stream.sse("-1") as events:
        assert events.headers["stream-sse-data-encoding"] == "base64"
        data, control = events.until_up_to_date()
    assert base64.b64decode(data.data, validate=True) == payload
    assert control.control["streamNextOffset"] == "0000000000000256"


@pytest.mark.parametrize("size", [1, 2, 3, 4, 100_000])
def test_base64_is_whole_in_every_event(stream: Stream, size: int) -> None:
    """5.8: "The resulting string (after removing \\n and \\r) MUST be valid base64 text with length that is a
    multiple of 4 (or empty)"."""
    payload = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
    stream.create(payload, BYTES)
    with stream.sse("-1") as events:
        found = [event.data for event in events.until_up_to_date() if event.kind == "data"]
    assert all(len(text) % 4 == 0 for text in found)
    assert b"".join(base64.b64decode(text, validate=True) for text in found) == payload


@pytest.mark.parametrize("content_type", [TEXT, "text/html; charset=utf-8", JSON])
def test_text_travels_as_it_is(stream: Stream, content_type: str) -> None:
    """5.8: "For streams with content-type: text/* or application/json, data events carry UTF-8 text
    directly"."""
    stream.create('["é\u2028"]'.encode(), content_type)
    with stream.sse("-1") as events:
        assert "stream-sse-data-encoding" not in events.headers
        data = events.next()
    assert data.kind == "data"
    assert data.data == '["é\u2028"]'


@pytest.mark.parametrize("line_break", ["\n", "\r", "\r\n"])
def test_every_line_is_prefixed_and_no_payload_can_fake_an_event(stream: Stream, line_break: str) -> None:
    """5.8: "Each line prefixed with data:"."""
    lines = ["first", "", "event: control", 'data: {"streamClosed":true}', "", "last"]
    stream.create(line_break.join(lines).encode())
    with stream.sse("-1") as events:
        data, control = events.until_up_to_date()
    assert data.data == "\n".join(lines)
    assert "streamClosed" not in control.control


def test_a_control_event_follows_every_data_event(stream: Stream) -> None:
    """5.8: control: "Emitted after every data event; MUST include streamNextOffset; MUST include streamCursor
    when the stream is open"."""
    stream.create(b"[1]", JSON)
    with stream.sse("-1") as events:
        seen = events.until_up_to_date()
        for number in range(3):
            stream.append(b"[%d]" % number)
            seen += events.until_up_to_date()
    assert [event.kind for event in seen] == ["data", "control"] * 4
    assert all(isinstance(json.loads(event.data), list) for event in seen[::2])
    offsets = [event.control["streamNextOffset"] for event in seen[1::2]]
    assert offsets == sorted(set(offsets))
    assert all(event.control["streamCursor"].isdigit() for event in seen[1::2])


def test_caught_up_is_said_when_it_is_so_and_not_before(stream: Stream) -> None:
    """5.8: control "MUST include upToDate: true when the client is caught up with all available data"."""
    stream.create(b"x" * 700_000)
    with stream.sse("-1") as events:
        controls = [event.control for event in events.until_up_to_date() if event.kind == "control"]
    assert len(controls) > 1, "more than one batch"
    assert [control.get("upToDate", False) for control in controls] == [False] * (len(controls) - 1) + [True]
    assert controls[-1]["streamNextOffset"] == "0000000000700000"


def test_a_reader_at_the_tail_is_told_so_at_once(stream: Stream) -> None:
    """5.8: control "MUST include upToDate: true when the client is caught up": also with nothing to send."""
    stream.create()
    with stream.sse("-1") as events:
        control = events.next()
    assert control.control["streamNextOffset"] == ZERO
    assert control.control["upToDate"] is True


def test_the_last_control_event_says_closed_and_the_connection_ends(stream: Stream) -> None:
    """5.8: control "MUST include streamClosed: true when the stream is closed and all data up to the final
    offset has been sent"; "The final control event MUST include streamClosed: true; After emitting the
    final control event, servers MUST close the SSE connection"."""
    stream.create(b"data", stream_closed="true")
    with stream.sse("-1") as events:
        data, control = events.rest()
    assert data.data == "data"
    assert control.control == {
        "streamNextOffset": "0000000000000004",
        "upToDate": True,
        "streamClosed": True,
    }


def test_a_close_ends_the_event_streams_of_waiting_readers(stream: Stream) -> None:
    """5.8: "The final control event MUST include streamClosed: true"."""
    stream.create(b"data")
    with stream.sse("-1") as events:
        events.until_up_to_date()
        stream.close()
        (control,) = events.rest()
    assert control.control["streamClosed"] is True


def test_at_the_end_of_a_closed_stream_the_end_is_all_there_is(stream: Stream) -> None:
    """5.8: when the stream is closed and the client is at the tail: "Servers MUST immediately emit a
    control event with streamClosed: true and upToDate: true; Servers MUST then close the connection"."""
    tail = stream.create(b"data", stream_closed="true").next_offset
    started = time.monotonic()
    with stream.sse(tail) as events:
        (control,) = events.rest()
    assert time.monotonic() - started < 5
    assert control.control == {"streamNextOffset": tail, "upToDate": True, "streamClosed": True}


def test_connections_are_closed_after_a_while_and_can_be_resumed(guarded_stream: Stream) -> None:
    """5.8: "Server SHOULD close connections roughly every ~60 seconds to enable CDN collapsing"; 8.2: "SSE
    connections SHOULD be closed by the server approximately every 60 seconds". (This server has 0.3 s.)"""
    assert Settings().sse_max_age == 60
    guarded_stream.create(b"data")
    with guarded_stream.sse("-1") as events:
        data, control = events.rest()
    assert data.data == "data"
    assert "streamClosed" not in control.control
    guarded_stream.append(b"more")
    with guarded_stream.sse(control.control["streamNextOffset"]) as events:
        assert events.next().data == "more"


def test_an_event_stream_is_not_stored_by_caches(stream: Stream) -> None:
    """8.2, 5.8: what is live is fetched from the server."""
    stream.create()
    with stream.sse("-1") as events:
        assert "no-cache" in events.headers["cache-control"]
