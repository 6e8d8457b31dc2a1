import pytest

from perennial.protocol.messages import join_json, split_json
from perennial.protocol.rejections import Malformed


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        (b'{"event": "created"}', [b'{"event": "created"}']),
        (b'[{"event": "a"}, {"event": "b"}]', [b'{"event": "a"}', b'{"event": "b"}']),
        (b"[[1,2], [3,4]]", [b"[1,2]", b"[3,4]"]),
        (b"[[[1,2,3]]]", [b"[[1,2,3]]"]),
        (b"[[]]", [b"[]"]),
        (b"[]", []),
        (b" [ ] ", []),
        (b"null", [b"null"]),
        (b"[null]", [b"null"]),
        (b"true", [b"true"]),
        (b'"text"', [b'"text"']),
        (b"-1.5e+3", [b"-1.5e+3"]),
    ],
)
def test_one_array_level_is_flattened(body: bytes, messages: list[bytes]) -> None:
    assert split_json(body) == messages


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        (b'  {"b": 1,   "a": 1}\n', [b'{"b": 1,   "a": 1}']),
        (b"[ 1.0 ,\t1e0,\r\n1 ]", [b"1.0", b"1e0", b"1"]),
        (b'{"a":1,"a":2}', [b'{"a":1,"a":2}']),
        (rb'["\u00e9", "\/"]', [rb'"\u00e9"', rb'"\/"']),
        ('["é"]'.encode(), ['"é"'.encode()]),
        (
            b"[12345678901234567890123456789012345678901234567890]",
            [b"12345678901234567890123456789012345678901234567890"],
        ),
        (b"1e999", [b"1e999"]),
    ],
)
def test_messages_keep_their_own_bytes(body: bytes, messages: list[bytes]) -> None:
    assert split_json(body) == messages


@pytest.mark.parametrize(
    "body",
    [
        b" ",
        b"{",
        b"[1,]",
        b'{"a":1,}',
        b'{"a"}',
        b"{1:2}",
        b"[1 2]",
        b"1 2",
        b"[1]]",
        b"nul",
        b"True",
        b"'a'",
        b'"a',
        b'"\x01"',
        b'"\t"',
        rb'"\x"',
        rb'"\u12"',
        rb'["\q"]',
        b"01",
        b"-",
        b"1.",
        b".5",
        b"+1",
        b"0x1",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"[1]\0",
        b"\x0c1",
        b"// c\n1",
        b"undefined",
    ],
)
def test_what_is_no_json_is_refused(body: bytes) -> None:
    assert isinstance(split_json(body), Malformed)


@pytest.mark.parametrize("body", [b'"\xff"', b'"\xc3"', b'"\xed\xa0\x80"', b'{"\xff":1}', b"\xff\xfe1\x00"])
def test_json_is_utf_8(body: bytes) -> None:
    rejected = split_json(body)
    assert isinstance(rejected, Malformed)
    assert "UTF-8" in rejected.message


def test_a_byte_order_mark_is_no_json() -> None:
    assert isinstance(split_json(b"\xef\xbb\xbf{}"), Malformed)


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b"[" * 50_000 + b"]" * 50_000, b'{"a":' * 50_000 + b"1" + b"}" * 50_000]
)
def test_nesting_without_end_is_refused_and_not_fatal(body: bytes) -> None:
    assert isinstance(split_json(body), Malformed)


def test_messages_join_into_an_array() -> None:
    assert join_json([]) == b"[]"
    assert join_json([b"1"]) == b"[1]"
    assert join_json([b"1", memoryview(b'{"a":2}')]) == b'[1,{"a":2}]'
