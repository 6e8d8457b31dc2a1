"""Frames: any cut, any resumption, the same responses; garbage is named (proxy protocol, 5)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perennial.protocol.frames import (
    HEADER_BYTES,
    LARGEST_PAYLOAD,
    LARGEST_RESPONSE_ID,
    Failure,
    Frame,
    FrameError,
    FrameParser,
    FrameType,
    Start,
    encode_abort,
    encode_complete,
    encode_data,
    encode_error,
    encode_frame,
    encode_start,
    parse_failure,
    parse_start,
)

ids = st.integers(1, LARGEST_RESPONSE_ID)
bodiless = st.sampled_from([FrameType.COMPLETE, FrameType.ABORT])
with_body = st.sampled_from([FrameType.START, FrameType.DATA, FrameType.ERROR])
frames = st.one_of(st.tuples(bodiless, ids, st.just(b"")), st.tuples(with_body, ids, st.binary(max_size=80)))


def parts(found: list[Frame]) -> list[tuple[FrameType, int, bytes]]:
    return [(frame.type, frame.response_id, frame.payload) for frame in found]


def encode_all(made: list[tuple[FrameType, int, bytes]]) -> bytes:
    return b"".join(encode_frame(*each) for each in made)


def test_the_layout_is_type_id_length_payload() -> None:
    """5.1: 1 byte type, 4 bytes response id and 4 bytes payload length, big-endian, then the payload."""
    assert encode_data(258, b"hi") == b"D\x00\x00\x01\x02\x00\x00\x00\x02hi"
    assert encode_complete(1) == b"C\x00\x00\x00\x01\x00\x00\x00\x00"
    assert encode_abort(LARGEST_RESPONSE_ID) == b"A\xff\xff\xff\xff\x00\x00\x00\x00"
    assert {kind.value for kind in FrameType} == {0x53, 0x44, 0x43, 0x41, 0x45}


def test_start_and_error_carry_json() -> None:
    """5.2: status and headers are REQUIRED, names lowercased; code and message."""
    [start] = FrameParser().feed(encode_start(1, 200, {"Content-Type": "text/plain"}))
    assert start.payload == b'{"status":200,"headers":{"content-type":"text/plain"}}'
    assert parse_start(start) == Start(200, {"content-type": "text/plain"})
    [empty] = FrameParser().feed(encode_start(1, 204, {}))
    assert parse_start(empty).headers == {}
    [error] = FrameParser().feed(encode_error(1, "UPSTREAM_TIMEOUT", "too slow"))
    assert parse_failure(error) == Failure("UPSTREAM_TIMEOUT", "too slow")


@given(st.lists(frames, max_size=12), st.lists(st.integers(0, 400), max_size=12))
def test_any_cut_gives_the_same_frames(made: list[tuple[FrameType, int, bytes]], cuts: list[int]) -> None:
    whole = encode_all(made)
    places = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    parser = FrameParser()
    found = [frame for start, end in pairwise(places) for frame in parser.feed(whole[start:end])]
    assert parts(found) == made
    assert parser.position == parser.boundary == len(whole)


@given(st.lists(frames, min_size=1, max_size=8), st.integers(0, 600))
def test_reading_goes_on_at_position_with_the_same_parser(
    made: list[tuple[FrameType, int, bytes]], cut: int
) -> None:
    """5.4: buffer partial frame data: the connection may break in the middle of a frame."""
    whole = encode_all(made)
    parser = FrameParser()
    found = parser.feed(whole[:cut])
    assert parser.position == min(cut, len(whole))
    found += parser.feed(whole[parser.position :])
    assert parts(found) == made


@given(st.lists(frames, min_size=1, max_size=8), st.integers(0, 600))
def test_another_parser_goes_on_at_a_boundary(made: list[tuple[FrameType, int, bytes]], cut: int) -> None:
    """5.4: track byte offsets at frame boundaries and resume from the nearest one."""
    whole = encode_all(made)
    first = FrameParser()
    found = first.feed(whole[:cut])
    second = FrameParser(first.boundary)
    found += second.feed(whole[second.position :])
    assert parts(found) == made
    assert second.boundary == len(whole)


@given(st.lists(frames, min_size=1, max_size=8))
def test_frames_know_where_they_end(made: list[tuple[FrameType, int, bytes]]) -> None:
    ends = [frame.end for frame in FrameParser(1000).feed(encode_all(made))]
    expected, position = [], 1000
    for _, _, payload in made:
        position += HEADER_BYTES + len(payload)
        expected.append(position)
    assert ends == expected


@given(st.binary(min_size=1, max_size=60))
def test_garbage_is_refused_or_waits_for_more(garbage: bytes) -> None:
    parser = FrameParser()
    complaint: FrameError | None = None
    try:
        parser.feed(garbage)
    except FrameError as error:
        complaint = error
    if complaint is None:
        assert parser.position == len(garbage)
    else:
        assert 0 <= complaint.offset < len(garbage)
        assert f"offset {complaint.offset}" in str(complaint)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"X", "unknown frame type 0x58"),
        (b"<!DOCTYPE html>", "unknown frame type 0x3c"),
        (b"D\x00\x00\x00\x00\x00\x00\x00\x01x", "response id 0"),
        (b"C\x00\x00\x00\x01\x00\x00\x00\x01x", "a payload in a Complete frame"),
        (b"A\x00\x00\x00\x01\x00\x00\x00\x05", "a payload in an Abort frame"),
        (b"D\x00\x00\x00\x01\xff\xff\xff\xff", f"more than {LARGEST_PAYLOAD}"),
    ],
)
def test_what_is_no_frame_is_named(data: bytes, complaint: str) -> None:
    """5.4: implementations SHOULD validate frame type bytes and reject unknown types."""
    parser = FrameParser()
    parser.feed(encode_complete(7))
    with pytest.raises(FrameError, match=complaint) as caught:
        parser.feed(data)
    assert caught.value.offset == HEADER_BYTES
    with pytest.raises(FrameError):
        parser.feed(encode_complete(7))


@pytest.mark.parametrize(
    "payload", [b"", b"[]", b'{"status":200}', b'{"headers":{}}', b"\xff", b'{"status":"x","headers":{}}']
)
def test_a_malformed_start_is_named(payload: bytes) -> None:
    [frame] = FrameParser(50).feed(encode_frame(FrameType.START, 1, payload))
    with pytest.raises(FrameError, match=r"malformed Start frame .* at offset 50"):
        parse_start(frame)
