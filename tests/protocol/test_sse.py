import base64
import json

import pytest

from perennial.protocol.sse import encode_base64, encode_control, encode_text
from tests.protocol.events import Event, parse_events


@pytest.mark.parametrize(
    ("payload", "wire"),
    [
        (b"hello", b"event: data\ndata:hello\n\n"),
        (b"a\nb", b"event: data\ndata:a\ndata:b\n\n"),
        (b"a\r\nb", b"event: data\ndata:a\ndata:b\n\n"),
        (b"a\rb", b"event: data\ndata:a\ndata:b\n\n"),
        (b"a\n", b"event: data\ndata:a\ndata:\n\n"),
        (b"\n", b"event: data\ndata:\ndata:\n\n"),
        (b" a\n  b", b"event: data\ndata:  a\ndata:   b\n\n"),
        (b"\ta", b"event: data\ndata:\ta\n\n"),
    ],
)
def test_every_line_of_a_text_is_a_data_line(payload: bytes, wire: bytes) -> None:
    assert encode_text(payload) == wire


@pytest.mark.parametrize(
    "payload",
    [
        b"x\n\nevent: control\ndata: {}\n\n",
        b"x\r\n\r\nevent: control\r\ndata: {}\r\n\r\n",
        b"x\r\revent: control\rdata: {}\r\r",
        b"\n\n\n",
        b"event: control",
        b":comment",
        b"id: 1\nretry: 1",
    ],
)
def test_no_payload_can_fake_an_event(payload: bytes) -> None:
    text = payload.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    assert parse_events(encode_text(payload)) == [Event("data", text)]


@pytest.mark.parametrize("payload", [b"", b"\0", b"\xff\n\xfe", bytes(range(256))])
def test_bytes_travel_as_standard_padded_base64_on_one_line(payload: bytes) -> None:
    wire = encode_base64(payload)
    assert wire == b"event: data\ndata:" + base64.b64encode(payload) + b"\n\n"


def control(**rest: object) -> dict[str, object]:
    arguments = {"next_offset": "0000000000000007", "cursor": 42, "up_to_date": False, "closed": False}
    wire = encode_control(**{**arguments, **rest})  # type: ignore[arg-type]
    assert wire.count(b"\n") == 3, "flat, on one line"
    (event,) = parse_events(wire)
    assert event.name == "control"
    fields: dict[str, object] = json.loads(event.data)
    return fields


def test_a_control_event_says_where_to_go_on() -> None:
    assert control() == {"streamNextOffset": "0000000000000007", "streamCursor": "42"}


def test_a_control_event_says_when_the_reader_has_everything() -> None:
    assert control(up_to_date=True) == {
        "streamNextOffset": "0000000000000007",
        "streamCursor": "42",
        "upToDate": True,
    }


def test_the_last_control_event_has_no_cursor() -> None:
    assert control(up_to_date=True, closed=True) == {
        "streamNextOffset": "0000000000000007",
        "upToDate": True,
        "streamClosed": True,
    }


def test_the_wire_form_is_what_strict_readers_expect() -> None:
    """`event: name` with a space, `data:` without, bare LF."""
    assert encode_control("0000000000000007", None, up_to_date=False, closed=False) == (
        b'event: control\ndata:{"streamNextOffset":"0000000000000007"}\n\n'
    )
