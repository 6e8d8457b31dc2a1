"""Whatever a client asks for: a clear refusal, nothing changed, a server that carries on, and a quiet log."""

from itertools import count

import pytest

from tests.harness.server import ServerProcess
from tests.harness.wire import Wire
from tests.robustness.victims import JSON, MAX_BODY, ROOT, TEXT, Streams, ask, assert_refused, speak

_names = count()


# Reading

OFFSETS = [
    "",
    "0",
    "-2",
    "--1",
    "NOW",
    "now%20",
    "1e3",
    "%2B000000000000001",
    "000000000000000",  # fifteen
    "00000000000000000",  # seventeen
    "0000000000000000%0A",
    "0000000000000000%0D%0A",
    "0000000000000000%00",
    "0000000000000000_",
    "0000000000000000_1",
    "0000000000000000__0000000000000000",
    "0000000000000000,0000000000000000",
    "..%2F..%2Fetc%2Fpasswd",
    "%D9%A0" * 16,  # sixteen digits, but Arabic ones
    "%FF%FE",
    "%ED%A0%80",
    "%F0%9F%8C%8A",
    "0" * 5000,
    "9999999999999999",  # well-formed, and beyond the tail
]


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
def test_a_malformed_offset_is_refused(streams: Streams, offset: str, live: str) -> None:
    assert_refused(ask(streams, "GET", f"{streams.text}?offset={offset}{live}"))


@pytest.mark.parametrize(
    "query",
    [
        "offset=-1&offset=-1",
        "offset=-1&offset=0000000000000000",
        "offset=-1&live=sse&live=sse",
        "offset=-1&live=long-poll&live=sse",
        "offset=-1&live=sse&cursor=1&cursor=2",
        "offset=-1&%6fffset=-1",
        "offset=-1&live=",
        "offset=-1&live=SSE",
        "offset=-1&live=sse%00",
        "live=sse",
        "live=long-poll",
    ],
)
def test_an_ambiguous_read_is_refused(streams: Streams, query: str) -> None:
    assert_refused(ask(streams, "GET", f"{streams.text}?{query}"))


@pytest.mark.parametrize("cursor", ["", "abc", "-1", "1e9", "9" * 400, "%00", "%F0%9F%8C%8A"])
def test_a_cursor_that_was_never_minted_is_ignored(streams: Streams, cursor: str) -> None:
    answer = ask(streams, "GET", f"{streams.text}?offset=-1&live=long-poll&cursor={cursor}")
    assert (answer.status, answer.body) == (200, b"before")
    assert answer.headers["stream-cursor"].isdecimal()


def test_an_offset_inside_a_json_message_is_refused(streams: Streams) -> None:
    for live in ("", "&live=long-poll", "&live=sse"):
        assert_refused(ask(streams, "GET", f"{streams.json}?offset=0000000000000003{live}"))


@pytest.mark.parametrize("tag", ["", '"', "W/", '"a" "b"', "*, *", "é", '"' * 1000, "a" * 8000])
def test_an_odd_if_none_match_matches_nothing(streams: Streams, tag: str) -> None:
    assert ask(streams, "GET", streams.text, {"If-None-Match": tag}).status == 200


# Names


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "a/",
        "/a",
        "a//b",
        ".",
        "..",
        "a/..",
        "a/../b",
        "../../etc/passwd",
        "%2e%2e",
        "a/%2e%2e/b",
        "a/%2E./b",
        "a%2f%2e%2e%2fb",
        "a%2F%2Fb",
        "a%00b",
        "%00",
        "%",
        "%1",
        "%zz",
        "a%",
        "%u0041",
        "%ff",
        "%c3",
        "%c0%af",  # an overlong slash
        "%ed%a0%80",  # half of a surrogate pair
        "x" * 1025,
        "%C3%A9" * 513,
        "x" * 8000,
    ],
)
@pytest.mark.parametrize("method", ["PUT", "POST", "GET", "DELETE"])
def test_a_name_no_stream_may_have_is_refused(streams: Streams, name: str, method: str) -> None:
    body = b"x" if method in ("PUT", "POST") else b""
    assert_refused(ask(streams, method, name, TEXT, body))
    # HEAD says the same, without the words.
    assert ask(streams, "HEAD", name).status == 400


def test_a_target_beyond_all_measure_is_refused_before_it_is_complete(streams: Streams) -> None:
    assert_refused(speak(streams, b"GET " + b"/v1/stream/" + b"x" * 9000), 414)


@pytest.mark.parametrize(
    "target",
    [
        b"/v1/stream/\xff",
        b"/v1/stream/\xc3\xa9",
        b"/v1/stream/a\x00b",
        b"/v1/stream/a\x01b",
        b"/v1/stream/a b",
        b"/v1/stream/a#b",
        b"v1/stream/a",
        b"*",
        b"ftp://test/v1/stream/a",
        b"http://",
        b"//",
        b"",
    ],
)
def test_a_target_that_is_no_path_is_refused(streams: Streams, target: bytes) -> None:
    answer = speak(streams, b"GET " + target + b" HTTP/1.1\r\nHost: test\r\n\r\n")
    assert_refused(answer, 400, 404)


@pytest.mark.parametrize("name", ["ü", "流/🌊", "a b", "~!$&'()*+,;=:@", "a%2Fb", "-", "..."])
def test_a_name_that_only_looks_odd_is_as_good_as_any(victim: ServerProcess, name: str) -> None:
    path = ROOT + "odd/" + "".join(f"%{byte:02X}" for byte in name.replace("%2F", "/").encode())
    with Wire(victim.port) as wire:
        assert wire.request("PUT", path, TEXT, b"x").status == 201
        assert wire.request("GET", path).body == b"x"
        assert wire.request("DELETE", path).status == 204


# Headers of a write

PRODUCER = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}


@pytest.mark.parametrize("missing", PRODUCER)
def test_producer_headers_come_together(streams: Streams, missing: str) -> None:
    two = {name: value for name, value in PRODUCER.items() if name != missing}
    assert_refused(ask(streams, "POST", streams.text, TEXT | two, b"x"))
    one = {missing: PRODUCER[missing]}
    assert_refused(ask(streams, "POST", streams.text, TEXT | one, b"x"))


@pytest.mark.parametrize("name", ["Producer-Epoch", "Producer-Seq"])
@pytest.mark.parametrize(
    "value",
    ["", "-1", "+1", "1.0", "1e3", "0x1", "1_0", "1 0", "a", "é", str(2**53), "9" * 20, "9" * 5000, "\xb2"],
)
def test_a_producer_number_that_is_none_is_refused(streams: Streams, name: str, value: str) -> None:
    assert_refused(ask(streams, "POST", streams.text, TEXT | PRODUCER | {name: value}, b"x"))


def test_producer_headers_given_twice_are_refused(streams: Streams) -> None:
    for name in ("Producer-Epoch", "Producer-Seq"):
        twice = TEXT | PRODUCER | {name.lower(): "0"}
        assert_refused(ask(streams, "POST", streams.text, twice, b"x"))


@pytest.mark.parametrize(
    "headers",
    [
        PRODUCER | {"Producer-Id": ""},
        PRODUCER | {"Producer-Id": "x" * 1025},
        PRODUCER | {"Producer-Id": "x" * 20_000},
        {"Stream-Seq": "x" * 1025},
        {"Stream-Seq": "x" * 20_000},
    ],
    ids=["empty id", "long id", "giant id", "long seq", "giant seq"],
)
def test_what_a_stream_would_have_to_remember_is_bounded(streams: Streams, headers: dict[str, str]) -> None:
    assert_refused(ask(streams, "POST", streams.text, TEXT | headers, b"x"))


@pytest.mark.parametrize(
    "value",
    [
        "",
        "text",
        "text/",
        "/plain",
        "text//plain",
        "text/plain/x",
        "text plain",
        "text/plain, text/plain",
        "text/pl\xe4in",
        "text/\xf0\x9f\x8c\x8a",
        "application/json\x7f",
        "a/" + "b" * 300,
        "text/plain;" + "x" * 20_000,
    ],
)
def test_a_content_type_that_is_none_is_refused(streams: Streams, value: str) -> None:
    headers = {"Content-Type": value}
    assert_refused(ask(streams, "PUT", f"{streams.text}-new", headers, b"x"))
    assert_refused(ask(streams, "POST", streams.text, headers, b"x"))
    assert ask(streams, "HEAD", f"{streams.text}-new").status == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Stream-TTL": value}
        for value in (
            "",
            "-1",
            "+60",
            "00060",
            "60.5",
            "1e3",
            "abc",
            "\xb9",
            str(2**53),
            "9" * 5000,
            "60, 60",
        )
    ]
    + [
        {"Stream-Expires-At": value}
        for value in (
            "",
            "tomorrow",
            "2030-01-15",
            "2030-01-15T12:00:00",  # no zone
            "2030-01-15 12:00:00Z",
            "2030-02-30T12:00:00Z",
            "2030-01-15T25:00:00Z",
            "2030-01-15T12:00:00+25:00",
            "20300115T120000Z",
            "2030-W03-2T12:00:00Z",
            "1900000000",
            "10000-01-01T00:00:00Z",
            "9999-12-31T23:59:59-23:59",  # in the year 10000, where the clock stands that counts
            "2030-01-15T12:00:00Z\xe9",
            "2030-01-15T12:00:00." + "9" * 5000 + "Z",
        )
    ]
    + [{"Stream-TTL": "60", "Stream-Expires-At": "2030-01-15T12:00:00Z"}],
    ids=lambda headers: " ".join(f"{value[:30]}" for value in headers.values()),
)
def test_a_lifetime_that_is_none_is_refused(streams: Streams, headers: dict[str, str]) -> None:
    assert_refused(ask(streams, "PUT", f"{streams.text}-new", TEXT | headers))
    assert ask(streams, "HEAD", f"{streams.text}-new").status == 404


@pytest.mark.parametrize(
    "instant", ["1960-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "1970-01-01T00:00:00Z"]
)
def test_an_instant_long_past_makes_a_stream_that_has_expired(streams: Streams, instant: str) -> None:
    name = f"{streams.text}-past"
    assert ask(streams, "PUT", name, TEXT | {"Stream-Expires-At": instant}, b"x").status == 201
    assert ask(streams, "HEAD", name).status == 404


@pytest.mark.parametrize(
    "headers", [{"Stream-TTL": str(2**53 - 1)}, {"Stream-Expires-At": "9999-12-31T23:59:59.999Z"}]
)
def test_the_longest_lifetime_works(streams: Streams, headers: dict[str, str]) -> None:
    name = f"{streams.text}-long"
    assert ask(streams, "PUT", name, TEXT | headers, b"x").status == 201
    looked = ask(streams, "HEAD", name)
    assert {header: looked.headers[header.lower()] for header in headers} == headers
    assert ask(streams, "GET", name).body == b"x"
    assert ask(streams, "DELETE", name).status == 204


@pytest.mark.parametrize(
    "headers",
    [
        {"Stream-Forked-From": value}
        for value in (
            "",
            "source",
            "/",
            "/v1/stream/",
            "/v1/stream/../source",
            "/v1/stream/%2e%2e",
            "/v1/stream/%",
            "/v1/stream/%ff",
            "/v1/stream/a%00",
            "http://test/v1/stream/source",
            "\xff",
        )
    ]
    + [
        {"Stream-Forked-From": "{text}", "Stream-Fork-Offset": value}
        for value in ("", "-1", "now", "5", "\xb2")
    ]
    + [{"Stream-Forked-From": "{text}", "Stream-Fork-Offset": "0000000000000007"}]  # beyond the tail
    + [
        {
            "Stream-Forked-From": "{text}",
            "Stream-Fork-Offset": "0000000000000000",
            "Stream-Fork-Sub-Offset": value,
        }
        for value in ("", "-1", "+1", "05", "1.5", "abc", "7", "9" * 5000)
    ]
    + [{"Stream-Fork-Offset": "0000000000000000"}, {"Stream-Fork-Sub-Offset": "0"}],
    ids=lambda headers: " ".join(f"{value[:30]}" for value in headers.values()),
)
def test_a_fork_of_nothing_sensible_is_refused(streams: Streams, headers: dict[str, str]) -> None:
    filled = {name: value.replace("{text}", ROOT + streams.text) for name, value in headers.items()}
    assert_refused(ask(streams, "PUT", f"{streams.text}-fork", filled))
    assert ask(streams, "HEAD", f"{streams.text}-fork").status == 404


@pytest.mark.parametrize("value", ["\xe9\xff", "🌊".encode().decode("latin-1"), "a b", ",", "\t"])
def test_opaque_values_may_be_any_bytes_and_come_back_as_sent(victim: ServerProcess, value: str) -> None:
    name = f"{ROOT}opaque-{next(_names)}"
    content_type = f'text/plain; note="{value}"'
    with Wire(victim.port) as wire:
        made = wire.request("PUT", name, {"Content-Type": content_type})
        assert (made.status, made.headers["content-type"]) == (201, content_type)
        writer = TEXT | PRODUCER | {"Producer-Id": f"p{value}p", "Stream-Seq": f"s{value}s"}
        assert wire.request("POST", name, writer, b"x").status == 200
        assert wire.request("POST", name, writer, b"x").status == 204  # the same producer, again
        writer["Producer-Seq"] = "1"
        assert wire.request("POST", name, writer, b"x").status == 409  # the same sequence, again
        assert wire.request("GET", name).body == b"x"


def test_leading_zeros_do_not_make_a_producer_number_large(victim: ServerProcess) -> None:
    name = f"{ROOT}zeros-{next(_names)}"
    zeros = "0" * 5000
    with Wire(victim.port) as wire:
        assert wire.request("PUT", name, TEXT).status == 201
        for seq in ("", "1"):
            headers = TEXT | PRODUCER | {"Producer-Epoch": zeros, "Producer-Seq": f"{zeros}{seq}"}
            assert wire.request("POST", name, headers, b"x").status == 200


# Bodies


@pytest.mark.parametrize(
    "body",
    [
        b" ",
        b"[",
        b"]",
        b"[]",
        b"[1,]",
        b"[,1]",
        b"[1 2]",
        b"1 2",
        b"{}{}",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1,}',
        b"{'a':1}",
        b"{1:2}",
        b"NaN",
        b"[NaN]",
        b"Infinity",
        b'{"a":-Infinity}',
        b"nan",
        b"True",
        b"undefined",
        b"01",
        b"-",
        b"+1",
        b".5",
        b"1.",
        b"1e",
        b"0x10",
        b"1_000",
        b"9" * 1001,
        b"[1, -" + b"9" * 5000 + b"]",
        b'{"a":0.' + b"3" * 5000 + b"}",
        b'"open',
        b'"\\q"',
        b'"\\u12"',
        b'"\\uZZZZ"',
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'"\xed\xa0\x80"',
        b'"\xff"',
        b'"\xc3"',
        b'"\xc0\x80"',
        b'"\x00"',
        b'"\n"',
        b"\xef\xbb\xbf1",  # a byte order mark
        b"\xff\xfe1\x00",
        b"\x001",
        b"\xc2\xa01",  # a space, but not one of JSON's
        b"/* 1 */ 1",
        b"1 // one",
        b"[" * 100_000,
        b"[" * 5_000 + b"]" * 5_000,
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        b"\x1f\x8b\x08\x00",  # gzip
    ],
    ids=lambda body: repr(body[:24]),
)
def test_a_body_that_is_not_json_is_refused(streams: Streams, body: bytes) -> None:
    assert_refused(ask(streams, "POST", streams.json, JSON, body))
    assert_refused(ask(streams, "POST", streams.json, JSON | PRODUCER, body))
    if body != b"[]":  # which creates a stream without messages
        assert_refused(ask(streams, "PUT", f"{streams.json}-new", JSON, body))
        assert ask(streams, "HEAD", f"{streams.json}-new").status == 404


def test_a_refused_append_leaves_its_producer_unknown(victim: ServerProcess) -> None:
    name = f"{ROOT}free-{next(_names)}"
    with Wire(victim.port) as wire:
        wire.request("PUT", name, JSON)
        assert wire.request("POST", name, JSON | PRODUCER | {"Stream-Seq": "b"}, b"{").status == 400
        assert wire.request("POST", name, JSON | PRODUCER | {"Stream-Seq": "a"}, b"{}").status == 200


@pytest.mark.parametrize(
    "value",
    [
        b"null",
        b"-0",
        b"1E400",
        b"1e-400",
        b"9" * 1000,
        b'"' + b"9" * 100_000 + b'"',
        b'"\\u0000"',
        b'"\\ud83c\\udf0a"',
        "🌊".encode().join([b'"', b'"']),
        b'{"a":1,"a":2}',
        b"[" * 100 + b"]" * 100,
        b'"\\"' + b"9" * 2000 + b'"',
    ],
    ids=lambda value: repr(value[:24]),
)
def test_odd_but_valid_json_comes_back_byte_for_byte(victim: ServerProcess, value: bytes) -> None:
    name = f"{ROOT}exact-{next(_names)}"
    with Wire(victim.port) as wire:
        wire.request("PUT", name, JSON)
        assert wire.request("POST", name, JSON, b" [" + value + b" ] \n").status == 204
        assert wire.request("GET", name).body == b"[" + value + b"]"


def test_a_write_without_a_body_or_its_type_is_refused(streams: Streams) -> None:
    assert_refused(ask(streams, "POST", streams.text, TEXT))
    assert_refused(ask(streams, "POST", streams.text, TEXT | PRODUCER))
    assert_refused(ask(streams, "POST", streams.text, {}, b"x"))
    assert_refused(ask(streams, "POST", streams.text, JSON, b"1"), 409)
    assert_refused(ask(streams, "POST", streams.text, {"Stream-Closed": "yes"}))


def test_a_body_beyond_the_limit_is_refused(streams: Streams) -> None:
    assert_refused(ask(streams, "POST", streams.text, TEXT, b"x" * (MAX_BODY + 1)), 413)
