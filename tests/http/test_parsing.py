import logging
import re
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perennial.http.exchange import Request
from perennial.http.heads import KnownHeads
from perennial.http.limits import Limits
from perennial.http.parsing import BODY, DONE, HEAD, IDLE, PIECE_BYTES, ParsedRequest, RequestReader
from tests.http.wire import CHUNKED, Application, Sink

HOST = b"Host: a\r\n"


def reader(app: Application | None = None, limits: Limits | None = None) -> RequestReader:
    return RequestReader(
        app or Application(), limits or Limits(), SimpleNamespace(now=0.0), KnownHeads(), "192.0.2.1"
    )


def read(*pieces: bytes, app: Application | None = None, limits: Limits | None = None) -> list[ParsedRequest]:
    one = reader(app, limits)
    for piece in pieces:
        for start in range(0, len(piece), PIECE_BYTES):
            one.feed(piece[start : start + PIECE_BYTES])
    return one.ready


def refusal(*pieces: bytes, app: Application | None = None, limits: Limits | None = None) -> tuple[int, str]:
    requests = read(*pieces, app=app, limits=limits)
    assert requests, "neither a request nor a refusal"
    last = requests[-1]
    assert last.refusal is not None, f"{last.method} {last.path!r} was accepted"
    assert not last.keep_alive
    return last.refusal


# Requests


def test_a_request_has_its_parts() -> None:
    (request,) = read(b"GET /a%20b?c=d?e HTTP/1.1\r\nHost: a\r\nX-Thing:  some thing \t\r\n\r\n")
    assert (request.method, request.path, request.query) == ("GET", b"/a%20b", b"c=d?e")
    assert request.headers == {b"host": "a", b"x-thing": "some thing"}
    assert (request.body, request.scheme, request.client) == (b"", "http", "192.0.2.1")
    assert request.keep_alive
    assert request.refusal is None


def test_repeated_headers_are_joined() -> None:
    (request,) = read(b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\nx: 2\r\n\r\n")
    assert request.headers[b"x"] == "1, 2"


def test_repeated_cookies_are_joined_as_cookies_are() -> None:
    (request,) = read(b"GET / HTTP/1.1\r\nHost: a\r\nCookie: a=1; b=2\r\ncookie: c=3\r\n\r\n")
    assert request.headers[b"cookie"] == "a=1; b=2; c=3"


PIPELINE = (
    b"POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
    b"\r\nGET /2?x HTTP/1.1\r\nHost: a\r\n\r\n"
    b"POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
    b"3;extension=1\r\nabc\r\n4\r\ndefg\r\n0\r\nHost: evil\r\nX-Trailer: 1\r\n\r\n"
    b"PUT /4 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi"
    b"PUT /5 HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nho\r\n0\r\n\r\n"
    b"GET /6 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
)
PIPELINED = [
    ("POST", b"/1", b"hello"),
    ("GET", b"/2", b""),
    ("POST", b"/3", b"abcdefg"),
    ("PUT", b"/4", b"hi"),
    ("PUT", b"/5", b"ho"),
    ("GET", b"/6", b""),
]


def summary(requests: list[ParsedRequest]) -> list[tuple[str, bytes, bytes]]:
    return [(request.method, request.path, request.body) for request in requests]


def test_requests_come_out_in_order() -> None:
    requests = read(PIPELINE)
    assert summary(requests) == PIPELINED
    assert [request.keep_alive for request in requests] == [True] * 5 + [False]


def test_byte_by_byte_gives_the_same_requests() -> None:
    assert summary(read(*(bytes([byte]) for byte in PIPELINE))) == PIPELINED


@given(st.lists(st.integers(0, len(PIPELINE)), max_size=12))
def test_it_does_not_matter_where_buffers_end(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(PIPELINE)]
    pieces = [PIPELINE[start:end] for start, end in pairwise(edges)]
    assert summary(read(*pieces)) == PIPELINED


def test_trailers_do_not_become_headers() -> None:
    third = read(PIPELINE)[2]
    assert third.headers == {b"host": "a", b"transfer-encoding": "Chunked"}


def test_nothing_is_read_after_connection_close() -> None:
    one = reader()
    one.feed(b"GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
    one.feed(b"GET /3 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert summary(one.ready) == [("GET", b"/1", b"")]
    assert one.phase == DONE


def test_a_large_body_comes_out_whole() -> None:
    body = bytes(range(256)) * 1000
    (request,) = read(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert request.body == body
    assert type(request.body) is bytes


@pytest.mark.parametrize(
    ("version", "connection", "kept"),
    [
        ("1.1", None, True),
        ("1.1", "keep-alive", True),
        ("1.1", "close", False),
        ("1.1", "Close, TE", False),
        ("1.0", None, False),
        ("1.0", "keep-alive", True),
        ("1.0", "close", False),
    ],
)
def test_connections_are_kept_as_their_version_says(version: str, connection: str | None, kept: bool) -> None:
    lines = f"GET / HTTP/{version}\r\nHost: a\r\n"
    if connection is not None:
        lines += f"Connection: {connection}\r\n"
    (request,) = read(f"{lines}\r\n".encode())
    assert request.keep_alive is kept
    assert request.old is (version == "1.0")


def test_http_1_0_needs_no_host() -> None:
    (request,) = read(b"GET / HTTP/1.0\r\n\r\n")
    assert request.refusal is None


@pytest.mark.parametrize(
    ("target", "path", "query", "host"),
    [
        ("http://b:8080/p/q?r", b"/p/q", b"r", "b:8080"),
        ("http://b", b"/", b"", "b"),
        ("HTTP://b?q=/x", b"/", b"q=/x", "b"),
        ("https://user:secret@b/", b"/", b"", "b"),
    ],
)
def test_an_absolute_target_names_path_and_host(target: str, path: bytes, query: bytes, host: str) -> None:
    (request,) = read(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert (request.path, request.query, request.headers[b"host"]) == (path, query, host)


def test_options_may_ask_about_the_whole_server() -> None:
    (request,) = read(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (request.path, request.refusal) == (b"*", None)


def test_an_upgrade_without_a_body_is_ignored() -> None:
    upgrade = b"GET /1 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert summary(read(upgrade * 200)) == [("GET", b"/1", b"")] * 200


# Refusals


@pytest.mark.parametrize(
    ("status", "data"),
    [
        pytest.param(400, b"GET / HTTP/1.1\r\n\r\n", id="no Host"),
        pytest.param(400, b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", id="two Hosts"),
        pytest.param(400, b"GET * HTTP/1.1\r\n" + HOST + b"\r\n", id="star outside OPTIONS"),
        pytest.param(400, b"GET ftp://a/ HTTP/1.1\r\n" + HOST + b"\r\n", id="strange scheme"),
        pytest.param(400, b"GET http:///x HTTP/1.1\r\n" + HOST + b"\r\n", id="no authority"),
        pytest.param(400, b"GET x HTTP/1.1\r\n" + HOST + b"\r\n", id="relative target"),
        pytest.param(400, b"GET /a#b HTTP/1.1\r\n" + HOST + b"\r\n", id="fragment"),
        pytest.param(400, b"GET /a\x00b HTTP/1.1\r\n" + HOST + b"\r\n", id="NUL in the target"),
        pytest.param(400, b"GET /a\x01b HTTP/1.1\r\n" + HOST + b"\r\n", id="control in the target"),
        pytest.param(400, b"GET /a\x7fb HTTP/1.1\r\n" + HOST + b"\r\n", id="DEL in the target"),
        pytest.param(400, b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n", id="space in the target"),
        pytest.param(400, b"GET /a HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n", id="NUL in a header"),
        pytest.param(400, b"GET /a HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n", id="space before a colon"),
        pytest.param(400, b"GET /a HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", id="folded header"),
        pytest.param(400, b"GET /a HTTP/1.1\nHost: a\n\n", id="bare line feeds"),
        pytest.param(400, b"GET /a HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", id="no colon"),
        pytest.param(501, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", id="TLS"),
        pytest.param(501, b"BREW / HTTP/1.1\r\n" + HOST + b"\r\n", id="unknown method"),
        pytest.param(501, b"CONNECT a:1 HTTP/1.1\r\n" + HOST + b"\r\n", id="CONNECT"),
        pytest.param(505, b"GET /\r\n\r\n", id="HTTP/0.9"),
        pytest.param(400, b"GET / HTTP/1.2\r\n" + HOST + b"\r\n", id="HTTP/1.2"),
        pytest.param(400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2 preface"),
        pytest.param(417, b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: magic\r\n\r\n", id="strange expectation"),
    ],
)
def test_what_http_forbids_is_refused(status: int, data: bytes) -> None:
    assert refusal(data)[0] == status


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (400, "Content-Length: 3\r\nTransfer-Encoding: chunked"),
        (400, "Transfer-Encoding: chunked\r\nContent-Length: 3"),
        (400, "Content-Length: 3\r\nContent-Length: 3"),
        (400, "Content-Length: 3\r\nContent-Length: 4"),
        (400, "Content-Length: 3, 3"),
        (400, "Content-Length: +3"),
        (400, "Content-Length: -3"),
        (400, "Content-Length: 0x3"),
        (400, "Content-Length: 3 3"),
        (400, "Content-Length:"),
        (400, "Content-Length: 99999999999999999999999"),
        (400, "Transfer-Encoding: chunked, identity"),
        (400, "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
        (501, "Transfer-Encoding: gzip"),
        (501, "Transfer-Encoding: xchunked"),
        (501, "Transfer-Encoding: gzip, chunked"),
        (501, "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"),
        (400, "Transfer-Encoding:"),
    ],
)
def test_ambiguous_framing_is_refused(status: int, headers: str) -> None:
    hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
    data = f"POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n3\r\nabc\r\n0\r\n\r\n{hidden}".encode()
    requests = read(data)
    assert [request.refusal and request.refusal[0] for request in requests] == [status]


def test_chunked_framing_is_not_for_http_1_0() -> None:
    assert refusal(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")[0] == 400


@pytest.mark.parametrize(
    "body",
    [
        b"x\r\nabc\r\n",
        b"-1\r\n",
        b"3\r\nabcd\r\n0\r\n\r\n",
        b"3\nabc\r\n",
        b"fffffffffffffffff\r\n",
        b"3 \r\nabc",
    ],
)
def test_bad_chunks_are_refused(body: bytes) -> None:
    assert refusal(CHUNKED + body)[0] == 400


def test_a_refusal_knows_as_much_of_the_request_as_was_read() -> None:
    last = read(b"POST /path?q HTTP/1.1\r\nX: y\r\n\r\n")[-1]
    assert (last.method, last.path, last.headers) == ("POST", b"/path", {b"x": "y"})


@given(st.binary(max_size=300))
def test_no_bytes_can_make_it_fail(data: bytes) -> None:
    for request in read(data, b"\r\n\r\n"):
        if request.refusal is not None:
            assert request.refusal[0] in (400, 501, 505)


# Limits

LIMITS = Limits(target_bytes=100, header_bytes=1000, header_count=10)


def test_targets_up_to_the_limit_are_read() -> None:
    target = b"/" + b"x" * 99
    assert read(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % target, limits=LIMITS)[0].refusal is None
    assert refusal(b"GET %bx HTTP/1.1\r\nHost: a\r\n\r\n" % target, limits=LIMITS)[0] == 414


def test_an_endless_target_is_refused_before_it_ends() -> None:
    assert refusal(*[b"GET /"], *[b"x"] * 101, limits=LIMITS)[0] == 414


def test_the_default_limits_hold() -> None:
    assert refusal(b"GET /" + b"x" * 8192)[0] == 414
    assert refusal(b"GET / HTTP/1.1\r\nX: " + b"x" * 50_000)[0] == 431
    large = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 32_000 + b"\r\n%b\r\n"
    assert read(large % b"")[0].refusal is None
    assert refusal(large % (b"Y: " + b"y" * 1000 + b"\r\n"))[0] == 431
    many = b"GET / HTTP/1.1\r\nHost: a\r\n%b\r\n"
    assert read(many % b"".join(b"X%d: 1\r\n" % n for n in range(99)))[0].refusal is None
    assert refusal(many % b"".join(b"X%d: 1\r\n" % n for n in range(100)))[0] == 431


@pytest.mark.parametrize("size", [1, 7, 500])
@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(b"X: " + b"x" * 2000, id="value"),
        pytest.param(b"x" * 2000, id="name"),
        pytest.param(b"X: y\r\n" * 20, id="repeated"),
        pytest.param(b"".join(b"X%d: y\r\n" % n for n in range(200)), id="many"),
    ],
)
def test_an_endless_head_is_refused_before_it_ends(rest: bytes, size: int) -> None:
    pieces = [rest[start : start + size] for start in range(0, len(rest), size)]
    assert refusal(b"GET / HTTP/1.1\r\n", *pieces, limits=LIMITS)[0] == 431


def test_endless_blank_lines_are_refused() -> None:
    assert refusal(*[b"\r\n"] * 1000, limits=LIMITS)[0] == 431


def test_heads_are_counted_one_by_one() -> None:
    request = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 300 + b"\r\n\r\n"
    pieces = [(request * 20)[start : start + 50] for start in range(0, len(request) * 20, 50)]
    assert [one.refusal for one in read(*pieces, limits=LIMITS)] == [None] * 20


@pytest.mark.parametrize(
    "endless",
    [
        pytest.param(b"5;" + b"x" * 2000, id="extension"),
        pytest.param(b"5" + b";a=b" * 500, id="extensions"),
        pytest.param(b"0\r\nTrailer: " + b"x" * 2000, id="trailer"),
        pytest.param(b"0\r\n" + b"X: y\r\n" * 400, id="trailers"),
    ],
)
def test_endless_chunk_framing_is_refused(endless: bytes) -> None:
    pieces = [endless[start : start + 100] for start in range(0, len(endless), 100)]
    assert refusal(CHUNKED + b"1\r\nx\r\n", *pieces, limits=LIMITS)[0] in (400, 431)


def test_a_body_in_many_tiny_chunks_is_read() -> None:
    one = reader(limits=LIMITS)
    one.feed(CHUNKED)
    for _ in range(3000):
        for piece in (b"1", b"\r", b"\n", b"x", b"\r\n"):
            one.feed(piece)
    one.feed(b"0\r\n\r\n")
    assert [request.body for request in one.ready] == [b"x" * 3000]


def test_a_declared_body_is_refused_before_it_comes() -> None:
    app = Application(body_limit=10)
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    assert refusal(head % 11, app=app) == (413, "the body is larger than 10 bytes")
    assert read(head % 10 + b"x" * 10, app=app)[0].body == b"x" * 10


def test_a_chunked_body_is_refused_when_it_has_grown_too_large() -> None:
    app = Application(body_limit=10)
    assert read(CHUNKED + b"5\r\n12345\r\n" * 2 + b"0\r\n\r\n", app=app)[0].body == b"1234512345"
    assert refusal(CHUNKED + b"5\r\n12345\r\n" * 2 + b"1\r\n1\r\n", app=app)[0] == 413


def test_the_limit_is_asked_for_when_the_head_is_known() -> None:
    class Choosy(Application):
        def body_limit(self, request: Request) -> int:
            return 10 if request.path == b"/small" else 1000

    head = b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\n"
    assert refusal(head % b"/small", app=Choosy())[0] == 413
    assert not read(head % b"/large", app=Choosy())


# Sinks


def test_a_sink_is_fed_instead_of_the_body() -> None:
    sink = Sink()
    (request,) = read(CHUNKED, b"3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n", app=Application(sink=sink))
    assert (request.body, request.sink, sink.fed, sink.abandoned) == (b"", sink, [b"abc", b"de"], 0)


@pytest.mark.parametrize("rest", [b"zz\r\n", b"c\r\n123456789012\r\n"], ids=["malformed", "too large"])
def test_a_sink_is_told_when_the_rest_will_not_come(rest: bytes) -> None:
    sink = Sink()
    requests = read(CHUNKED, b"3\r\nabc\r\n", rest, app=Application(sink=sink, body_limit=10))
    assert (requests[0].sink, sink.abandoned) == (None, 1)


def test_a_sink_is_not_asked_for_when_the_body_is_refused() -> None:
    class NoSinks(Application):
        def body_sink(self, request: Request) -> None:
            raise AssertionError

    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n"
    assert refusal(head, app=NoSinks(body_limit=10))[0] == 413


def test_a_failing_sink_is_logged_and_answered_without_detail(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Sink):
        def feed(self, data: bytes) -> None:
            raise RuntimeError("disk on fire")

        def abandon(self) -> None:
            raise RuntimeError("still burning")

    with caplog.at_level(logging.ERROR):
        status, reason = refusal(CHUNKED, b"3\r\nabc\r\n", app=Application(sink=Broken()))
    assert (status, reason) == (500, "internal error")
    assert re.search("disk on fire(.|\n)*|still burning", caplog.text)


# Phases


def test_the_phase_follows_the_request() -> None:
    one = reader()
    phases = [one.phase]
    for piece in (b"P", b"OST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n", b"\r\n", b"a", b"b"):
        one.feed(piece)
        phases.append(one.phase)
    assert phases == [IDLE, HEAD, HEAD, BODY, BODY, IDLE]


@pytest.mark.parametrize(
    ("version", "framing", "wanted"),
    [
        ("1.1", "Content-Length: 2", True),
        ("1.1", "Transfer-Encoding: chunked", True),
        ("1.1", "Content-Length: 0", False),
        ("1.1", "X: y", False),
        ("1.0", "Content-Length: 2", False),
    ],
)
def test_a_continue_is_wanted_only_for_a_body(version: str, framing: str, wanted: bool) -> None:
    one = reader()
    one.feed(f"PUT / HTTP/{version}\r\nHost: a\r\nExpect: 100-Continue\r\n{framing}\r\n\r\n".encode())
    assert one.wants_continue is wanted


def test_a_body_that_did_not_wait_wants_no_continue() -> None:
    one = reader()
    one.feed(b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\na")
    assert not one.wants_continue
