"""JSON bodies: split into messages and joined again, nothing is lost, invented or re-spelled."""

import json
import re
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from perennial.protocol.messages import join_json, split_json
from perennial.protocol.rejections import Malformed

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)
blanks = st.text(" \t\r\n", max_size=3).map(str.encode)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[Any, bytes]:
    """A value and one of the many ways to write it."""
    value = draw(values)
    written = json.dumps(
        value,
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.none() | st.integers(0, 2)),
        separators=draw(st.sampled_from([(",", ":"), (" , ", " : "), ("\t,", ":\n")])),
    ).encode()
    return value, draw(blanks) + written + draw(blanks)


@given(bodies())
def test_any_json_splits_into_its_messages_and_joins_into_an_equal_array(body: tuple[Any, bytes]) -> None:
    value, written = body
    messages = split_json(written)
    assert not isinstance(messages, Malformed), messages
    expected = value if isinstance(value, list) else [value]
    assert [json.loads(message) for message in messages] == expected
    assert json.loads(join_json(messages)) == expected


@given(bodies())
def test_messages_are_cut_out_of_the_body_in_order(body: tuple[Any, bytes]) -> None:
    _, written = body
    messages = split_json(written)
    assert not isinstance(messages, Malformed)
    position = 0
    for message in messages:
        assert message
        assert message == message.strip(b" \t\r\n")
        position = written.index(message, position) + len(message)


@given(st.lists(bodies(), min_size=1, max_size=5))
def test_what_is_read_from_several_appends_is_one_valid_array(appends: list[tuple[Any, bytes]]) -> None:
    stored: list[bytes] = []
    expected: list[Any] = []
    for value, written in appends:
        messages = split_json(written)
        assert not isinstance(messages, Malformed)
        stored += messages
        expected += value if isinstance(value, list) else [value]
    assert json.loads(join_json(stored)) == expected


def reference(body: bytes) -> bool:
    """Is it JSON, by the standard library's reckoning without its leniencies?"""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(body.decode("utf-8"), parse_constant=refuse)
    except ValueError:
        return False
    return True


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """JSON with a few bytes changed, dropped or added."""
    _, written = draw(bodies())
    body = bytearray(written)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(body)))
        byte = draw(
            st.sampled_from(b'[]{},:"\\0123456789.eE+-truefalsn \n\t\x00\x01\x7f\x80\xc3\xff')
            | st.integers(0, 255)
        )
        how = draw(st.sampled_from("cda"))
        if how == "a":
            body.insert(at, byte)
        elif at < len(body) and how == "c":
            body[at] = byte
        elif at < len(body):
            del body[at]
    return bytes(body)


@given(damaged() | st.binary(max_size=12))
def test_nothing_is_taken_for_json_that_is_not_and_nothing_refused_that_is(body: bytes) -> None:
    # Escaped lone surrogates are the one point of disagreement: grammatical, but no text.
    assume(re.search(rb"\\u[dD][89a-fA-F]", body) is None)
    assert isinstance(split_json(body), list) == reference(body)
