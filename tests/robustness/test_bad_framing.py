"""What is not HTTP, or not quite: refused before anything could be misunderstood."""

import pytest

from tests.harness.wire import Wire, encode_request
from tests.robustness.victims import MAX_BODY, ROOT, Streams, ask, assert_refused, speak


def _post(streams: Streams, *lines: bytes) -> bytes:
    start = f"POST {ROOT}{streams.text} HTTP/1.1".encode()
    return b"\r\n".join([start, b"Host: test", b"Content-Type: text/plain", *lines, b"", b""])


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        ([b"Content-Length: -1"], b""),
        ([b"Content-Length: +1"], b"x"),
        ([b"Content-Length: 1.0"], b"x"),
        ([b"Content-Length: 0x1"], b"x"),
        ([b"Content-Length: 1 1"], b"x"),
        ([b"Content-Length: 1, 1"], b"x"),
        ([b"Content-Length: a"], b"x"),
        ([b"Content-Length: \xb2"], b"xx"),
        ([b"Content-Length: 1", b"Content-Length: 2"], b"xx"),
        ([b"Content-Length: 99999999999999999999999"], b""),
        ([b"Content-Length: 18446744073709551615"], b""),
        ([b"Content-Length: 9223372036854775807"], b""),
        ([b"Content-Length: %d" % (MAX_BODY + 1)], b""),
        ([b"Content-Length: 1", b"Transfer-Encoding: chunked"], b"1\r\nx\r\n0\r\n\r\n"),
        ([b"Transfer-Encoding: chunked", b"Content-Length: 1"], b"1\r\nx\r\n0\r\n\r\n"),
        ([b"Transfer-Encoding: chunked, gzip"], b"0\r\n\r\n"),
        ([b"Transfer-Encoding: chunked, chunked"], b"0\r\n\r\n"),
        ([b"Transfer-Encoding : chunked"], b"0\r\n\r\n"),
        ([b"Transfer-Encoding: chunked"], b"z\r\nx\r\n0\r\n\r\n"),
        ([b"Transfer-Encoding: chunked"], b"-1\r\nx\r\n0\r\n\r\n"),
        ([b"Transfer-Encoding: chunked"], b"0x1\r\nx\r\n0\r\n\r\n"),
        ([b"Transfer-Encoding: chunked"], b"ffffffffffffffffff\r\nx"),
        ([b"Transfer-Encoding: chunked"], b"ffffffff\r\n" + b"x" * (MAX_BODY + 1)),
        ([b"Transfer-Encoding: chunked"], b"1\r\nxy\r\n0\r\n\r\n"),
        ([b"Transfer-Encoding: chunked"], b"1\nx\n0\n\n"),
        ([b"Transfer-Encoding: chunked"], b"1" + b" " * 50_000 + b"\r\nx\r\n0\r\n\r\n"),
        ([b"Transfer-Encoding: chunked"], b"1;" + b"x" * 50_000 + b"\r\nx\r\n0\r\n\r\n"),
        ([b"Transfer-Encoding: chunked"], b"0\r\n" + b"a: b\r\n" * 20_000 + b"\r\n"),
    ],
    ids=lambda part: repr(part)[:60],
)
def test_a_body_whose_end_is_unclear_is_refused(streams: Streams, lines: list[bytes], body: bytes) -> None:
    assert_refused(speak(streams, _post(streams, *lines) + body), 400, 413, 431, 501)


@pytest.mark.parametrize(
    ("head", "statuses"),
    [
        (b"GET / HTTP/1.1\r\nHost: t\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", (431,)),
        (b"GET / HTTP/1.1\r\nHost: t\r\n" + b"X: x\r\n" * 200 + b"\r\n", (431,)),
        (
            b"GET / HTTP/1.1\r\nHost: t\r\n" + b"".join(b"X%d: x\r\n" % n for n in range(200)) + b"\r\n",
            (431,),
        ),
        (b"GET / HTTP/1.1\r\nHost: t\r\n" + b"x" * 50_000, (431,)),
        (b"GET / HTTP/1.1\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: a\r\n: none\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX\xe9: a\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\nHost: a\n\n", (400,)),
        (b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", (400,)),
        (b"GET /\r\n\r\n", (400, 505)),
        (b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", (400, 505)),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", (400, 505)),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 501, 505)),
        (b"GET / FTP/1.1\r\nHost: a\r\n\r\n", (400,)),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", (400, 501)),  # a TLS greeting
        (b"\x00" * 100, (400, 501)),
        (b"\xff" * 100, (400, 501)),
        (b"HELO test\r\n", (400, 501)),
        (b"get / HTTP/1.1\r\nHost: a\r\n\r\n", (400, 501)),
        (b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", (400, 501)),
        (b"X" * 70_000, (400, 431, 501)),
        (b"CONNECT test:80 HTTP/1.1\r\nHost: test\r\n\r\n", (400, 405, 501)),
        (b"GET / HTTP/1.1\r\nHost: a\r\nExpect: the-unexpected\r\n\r\n", (417,)),
    ],
    ids=lambda part: repr(part)[:60],
)
def test_what_is_not_http_is_refused(streams: Streams, head: bytes, statuses: tuple[int, ...]) -> None:
    assert_refused(speak(streams, head), *statuses)


@pytest.mark.parametrize("method", ["PATCH", "TRACE", "PROPFIND", "MKCOL", "SUBSCRIBE", "PURGE", "SEARCH"])
def test_a_method_streams_do_not_know_is_refused_with_those_they_do(streams: Streams, method: str) -> None:
    answer = ask(streams, method, streams.text)
    assert_refused(answer, 405)
    assert "POST" in answer.headers["allow"]


def test_a_refused_request_takes_none_of_those_before_it_along(streams: Streams) -> None:
    """Requests sent ahead in one go: each is answered in its turn, and the bad one is the last."""
    with Wire(streams.port) as wire:
        good = encode_request("GET", ROOT + streams.text)
        wire.send(good + good + b"GET / HTTP/1.1\r\nHost : a\r\n\r\n" + good)
        assert [wire.answer().status for _ in range(3)] == [200, 200, 400]
        assert wire.rest() == b""


def test_a_request_hidden_in_a_body_is_not_obeyed(streams: Streams) -> None:
    """Request smuggling: whoever finds the end of the body elsewhere must not get to speak."""
    hidden = encode_request("DELETE", ROOT + streams.text)
    for lines in ([b"Content-Length: 4", b"Transfer-Encoding: chunked"], [b"Transfer-Encoding: x, chunked"]):
        with Wire(streams.port) as wire:
            wire.send(_post(streams, *lines) + b"0\r\n\r\n" + hidden)
            assert wire.answer().status in (400, 501)
            assert wire.rest() == b""
