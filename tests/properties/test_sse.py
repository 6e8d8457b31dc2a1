"""Event streams: whatever is in a payload, a parser gets it back, and nothing else."""

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from perennial.protocol.sse import encode_base64, encode_control, encode_text
from tests.protocol.events import Event, parse_events

# Payloads that try to be events themselves.
traps = st.lists(
    st.sampled_from(
        [
            b"\n",
            b"\r",
            b"\r\n",
            b"\n\n",
            b" ",
            b":",
            b"data:",
            b"data: ",
            b"event: control",
            b"event:",
            b"id:",
            b"\0",
        ]
    )
    | st.binary(max_size=4),
    max_size=12,
).map(b"".join)
payloads = (
    traps | st.binary(max_size=60) | st.text(max_size=30).map(lambda text: text.encode("utf-8", "replace"))
)


def with_unix_line_ends(payload: bytes) -> bytes:
    return payload.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


@given(payloads)
def test_a_text_comes_back_line_for_line_as_one_event(payload: bytes) -> None:
    assert parse_events(encode_text(payload)) == [Event("data", with_unix_line_ends(payload))]


@given(payloads)
def test_bytes_come_back_exactly(payload: bytes) -> None:
    (event,) = parse_events(encode_base64(payload))
    assert event.name == "data"
    assert len(event.data) % 4 == 0
    assert base64.b64decode(event.data, validate=True) == payload


@given(st.lists(st.tuples(payloads, st.booleans()), max_size=5))
def test_every_data_event_is_followed_by_its_control_event(batches: list[tuple[bytes, bool]]) -> None:
    wire = b""
    for index, (payload, up_to_date) in enumerate(batches):
        wire += encode_text(payload) + encode_control(f"{index:016d}", index, up_to_date, closed=False)
    events = parse_events(wire)
    assert [event.name for event in events] == ["data", "control"] * len(batches)
    for index, (payload, up_to_date) in enumerate(batches):
        data, control = events[2 * index : 2 * index + 2]
        assert data.data == with_unix_line_ends(payload)
        fields = json.loads(control.data)
        assert fields["streamNextOffset"] == f"{index:016d}"
        assert fields["streamCursor"] == str(index)
        assert ("upToDate" in fields) == up_to_date
