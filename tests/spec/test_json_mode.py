"""Base protocol, 7.1: JSON mode."""

import json

import pytest

from tests.spec.streams import JSON, Stream


@pytest.fixture
def messages(stream: Stream) -> Stream:
    stream.create(b"", JSON)
    return stream


def test_messages_keep_their_boundaries_and_come_as_an_array(messages: Stream) -> None:
    """7.1: "servers MUST preserve message boundaries … GET responses MUST return data as a JSON array
    containing all messages from the requested offset range"."""
    offsets = [messages.append(body) for body in (b'{"a": 1}', b'"two"', b"[3, 4]")]
    assert messages.messages() == [{"a": 1}, "two", 3, 4]
    assert json.loads(messages.get(offsets[0]).body) == ["two", 3, 4]
    assert json.loads(messages.get(offsets[1]).body) == [3, 4]
    assert json.loads(messages.get(offsets[2]).body) == []


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        (b'{"event": "created"}', [{"event": "created"}]),
        (b'[{"event": "a"}, {"event": "b"}]', [{"event": "a"}, {"event": "b"}]),
        (b"[[1,2], [3,4]]", [[1, 2], [3, 4]]),
        (b"[[[1,2,3]]]", [[[1, 2, 3]]]),
        (b"[[]]", [[]]),
        (b"null", [None]),
        (b'[null, true, 1.5, -0, ""]', [None, True, 1.5, 0, ""]),
    ],
)
def test_one_array_level_is_flattened(messages: Stream, body: bytes, stored: list[object]) -> None:
    """7.1: "When a POST request body contains a JSON array, servers MUST flatten exactly one level of the
    array, treating each element as a separate message"."""
    messages.append(body)
    assert messages.messages() == stored


@pytest.mark.parametrize("body", [b"[]", b" [ ] ", b"\n[]"])
def test_an_empty_array_appends_nothing_and_is_400(messages: Stream, body: bytes) -> None:
    """7.1: "Servers MUST reject POST requests containing empty JSON arrays ([]) with 400 Bad Request"."""
    assert messages.post(body).status == 400
    assert messages.post(body, stream_closed="true").status == 400
    assert "stream-closed" not in messages.head().headers


def test_an_empty_array_creates_an_empty_stream(stream: Stream) -> None:
    """7.1: "PUT requests with an empty array body ([]) are valid and create an empty stream"."""
    stream.create(b"[]", JSON)
    assert stream.get().body == b"[]"


@pytest.mark.parametrize(
    "body", [b"{", b"[1,]", b"'a'", b"NaN", b"1 2", b"\xff", b'"\xff"', b"\xef\xbb\xbf1", b"[" * 5000]
)
def test_what_is_no_json_is_400_and_changes_nothing(messages: Stream, body: bytes) -> None:
    """7.1: "Servers MUST validate that appended data is valid JSON. If validation fails, servers MUST
    return 400 Bad Request with an appropriate error message"."""
    answer = messages.produce(body, "p", 0, 0, stream_seq="b")
    assert answer.status == 400
    assert answer.reason
    assert messages.messages() == []
    assert messages.produce(b"1", "p", 0, 0, stream_seq="a").status == 200


def test_a_stream_with_broken_content_is_not_created(stream: Stream) -> None:
    """7.1: JSON validation, for the body of a PUT as well."""
    assert stream.put(b"{", JSON).status == 400
    assert stream.head().status == 404


@pytest.mark.parametrize("content_type", [JSON, "application/json; charset=utf-8", "Application/JSON"])
def test_reads_are_json(stream: Stream, content_type: str) -> None:
    """7.1: "GET responses for application/json streams MUST return Content-Type: application/json with a body
    containing a JSON array of all messages in the requested range"; an empty range is []."""
    stream.create(b"", content_type)
    empty = stream.get()
    assert empty.body == b"[]"
    assert empty.headers["content-type"].lower().startswith("application/json")
    stream.append(b"[1,2]")
    assert stream.get().body == b"[1,2]"


def test_numbers_and_texts_are_not_respelled(messages: Stream) -> None:
    """7.1: messages are stored, not interpreted."""
    messages.append(b'[1.0, 1e2, 12345678901234567890, "\\u00e9\\/", {"b":1,  "a":1}]')
    assert messages.get().body == b'[1.0,1e2,12345678901234567890,"\\u00e9\\/",{"b":1,  "a":1}]'
