"""Heads that come again are read faster, and never differently."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perennial.http import heads
from perennial.http.exchange import BodySink, Request
from perennial.http.heads import REMEMBERED_BYTES, REMEMBERED_HEADERS, KnownHeads
from perennial.http.limits import Limits
from perennial.http.parsing import IDLE, PIECE_BYTES, ParsedRequest, RequestReader
from tests.harness import wire as raw
from tests.harness.server import ServerProcess
from tests.http.wire import Application, Sink, Wire

APPEND = b"POST /s?q HTTP/1.1\r\nHost: a\r\nX-Thing: b\r\nContent-Length: 5\r\n\r\n"
GET = b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n"


class Uploads(Application):
    """Bodies for /sink go into sinks of their own."""

    def body_sink(self, request: Request) -> BodySink | None:
        return Sink() if request.path == b"/sink" else None


def reader(
    known: KnownHeads | None = None,
    *,
    limits: Limits | None = None,
    client: str = "192.0.2.1",
    secure: bool = False,
) -> RequestReader:
    known = KnownHeads() if known is None else known
    return RequestReader(
        Uploads(body_limit=40), limits or Limits(), SimpleNamespace(now=0.0), known, client, secure
    )


def feed(one: RequestReader, data: bytes) -> list[ParsedRequest]:
    for start in range(0, len(data), PIECE_BYTES):
        one.feed(data[start : start + PIECE_BYTES])
    requests = one.ready[:]
    one.ready.clear()
    return requests


def recalled(one: RequestReader, data: bytes) -> ParsedRequest | None:
    head = one.recall(data)
    return None if head is None else one.repeat(head, data[head.size :])


def receive(one: RequestReader, data: bytes) -> list[ParsedRequest]:
    """As a connection does it."""
    request = recalled(one, data)
    return feed(one, data) if request is None else [request]


def warmed(*messages: bytes, limits: Limits | None = None) -> KnownHeads:
    """What is known once each of these has come often enough to be remembered, if it can be."""
    known = KnownHeads()
    for message in messages * 2:
        feed(reader(known, limits=limits), message)
    return known


def parts(request: ParsedRequest) -> tuple[Any, ...]:
    sink = request.sink
    return (
        request.method,
        request.path,
        request.query,
        dict(request.headers),
        request.body,
        request.scheme,
        request.client,
        request.keep_alive,
        request.old,
        request.refusal,
        b"".join(sink.fed) if isinstance(sink, Sink) else None,
    )


# Remembering


def test_a_head_is_remembered_when_it_has_come_twice() -> None:
    one = reader()
    for body in (b"first", b"again"):
        assert one.recall(APPEND + body) is None
        feed(one, APPEND + body)
    request = recalled(one, APPEND + b"third")
    assert request is not None
    assert (request.method, request.path, request.query, request.body) == ("POST", b"/s", b"q", b"third")
    assert request.headers == {b"host": "a", b"x-thing": "b", b"content-length": "5"}
    assert (request.keep_alive, request.old, request.refusal) == (True, False, None)


def test_what_one_connection_taught_serves_another_with_its_own_address_and_scheme() -> None:
    known = warmed(APPEND + b"12345")
    request = recalled(reader(known, client="192.0.2.7", secure=True), APPEND + b"abcde")
    assert request is not None
    assert (request.client, request.scheme, request.body) == ("192.0.2.7", "https", b"abcde")


def test_a_body_may_look_like_the_end_of_a_head() -> None:
    request = recalled(reader(warmed(APPEND + b"12345")), APPEND + b"\r\n\r\n!")
    assert request is not None
    assert request.body == b"\r\n\r\n!"


def test_a_connection_goes_the_short_way_and_answers_as_before() -> None:
    wire = Wire()
    answers = [wire.feed(APPEND + b"%05d" % number) for number in range(4)]
    assert [answer[-5:] for answer in answers] == [b"%05d" % number for number in range(4)]
    assert len({answer[:-5] for answer in answers}) == 1
    first, second, *later = wire.app.seen
    assert first.headers is not second.headers
    assert all(request.headers is second.headers for request in later), "nothing was recalled"


def test_a_connection_that_is_closing_handles_nothing_more_not_even_what_it_knows() -> None:
    wire = Wire()
    for number in range(3):
        wire.feed(APPEND + b"%05d" % number)
    wire.connection.close()
    wire.connection.data_received(APPEND + b"12345")  # which TLS may still deliver
    assert len(wire.app.seen) == 3


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(APPEND, id="no body yet"),
        pytest.param(APPEND + b"1234", id="a part of the body"),
        pytest.param(APPEND + b"123456", id="a byte too many"),
        pytest.param(APPEND + b"12345" + APPEND + b"12345", id="two requests"),
        pytest.param(b"\r\n" + APPEND + b"12345", id="a blank line before"),
        pytest.param(APPEND.replace(b"X-Thing", b"x-thing") + b"12345", id="another spelling"),
        pytest.param(APPEND.replace(b": 5", b": 4") + b"1234", id="another length"),
        pytest.param(APPEND[:-1], id="a part of the head"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_only_exactly_one_request_is_recalled(data: bytes) -> None:
    assert reader(warmed(APPEND + b"12345")).recall(data) is None


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(b"P", id="a part of a method"),
        pytest.param(GET % 1 + b"GE", id="a request and a part of a method"),
        pytest.param(b"GET /1 HTTP/1.1\r\nX: ", id="a part of a head"),
        pytest.param(b"POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\n", id="no body yet"),
        pytest.param(b"POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", id="chunks"),
        pytest.param(b"\r\n", id="a blank line"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", id="the last request"),
        pytest.param(b"nonsense\r\n\r\n", id="a refused request"),
    ],
)
def test_nothing_is_recalled_in_the_middle_of_something_else(before: bytes) -> None:
    one = reader(warmed(APPEND + b"12345"))
    feed(one, before)
    assert one.phase != IDLE
    assert one.recall(APPEND + b"12345") is None


def test_a_method_that_began_in_the_piece_before_is_not_skipped_over() -> None:
    hidden = GET % 1
    one, plain = reader(warmed(hidden)), reader()
    for piece in (b"PUT /2 HTTP/1.1\r\nHost: a\r\n\r\nOPTIONS /", hidden):
        assert list(map(parts, receive(one, piece))) == list(map(parts, feed(plain, piece)))


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="chunked"
        ),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n", id="expectation"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n\r\n", id="upgrade"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", id="offer"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", id="close"),
        pytest.param(b"GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n", id="1.0"),
        pytest.param(b"GET / HTTP/1.0\r\nHost: a\r\nProxy-Connection: keep-alive\r\n\r\n", id="1.0, proxy"),
        pytest.param(b"PUT /sink HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", id="sink"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 41\r\n\r\n" + b"x" * 41, id="too large"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="no Host"),
        pytest.param(b"\r\n\r\n" + GET % 1, id="blank lines before"),
        pytest.param(GET % 1 + b"\r\n", id="a blank line after"),
        pytest.param(GET % 1 + GET % 1, id="two requests"),
    ],
)
def test_what_is_more_than_a_head_and_a_body_of_its_length_is_not_remembered(message: bytes) -> None:
    known = warmed(message, message)
    assert not known
    assert reader(known).recall(message) is None


def test_what_comes_in_pieces_is_not_remembered() -> None:
    known = KnownHeads()
    for _ in range(3):
        one = reader(known)
        feed(one, APPEND[:20])
        feed(one, APPEND[20:] + b"12345")
    assert not known


def test_trailers_of_one_request_do_not_reach_the_head_of_the_next() -> None:
    chunked = (
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Thing: evil\r\nY: z\r\n\r\n"
    )
    known = KnownHeads()
    for _ in range(2):
        one = reader(known)
        feed(one, chunked)
        feed(one, APPEND + b"12345")
    assert known[APPEND].headers == {b"host": "a", b"x-thing": "b", b"content-length": "5"}


@pytest.mark.parametrize(
    ("status", "rest"),
    [
        (
            400,
            b"1.0\r\nHost: a\r\nProxy-Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (505, b"2.0\r\nHost: a\r\nProxy-Connection: keep-alive\r\n\r\n"),
        (505, b"0.9\r\nHost: a\r\nProxy-Connection: keep-alive\r\n\r\n"),
    ],
)
def test_proxy_connection_does_not_make_another_version_pass_for_1_1(status: int, rest: bytes) -> None:
    (request,) = feed(reader(), b"POST / HTTP/" + rest)
    assert request.refusal is not None
    assert request.refusal[0] == status


# Bounds


def test_a_head_is_remembered_up_to_its_limit_and_not_beyond() -> None:
    head = b"GET / HTTP/1.1\r\nHost: a\r\nX: %b\r\n\r\n"
    longest = head % (b"x" * (REMEMBERED_BYTES - len(head % b"")))
    assert len(longest) == REMEMBERED_BYTES
    assert reader(warmed(longest)).recall(longest) is not None
    longer = longest.replace(b"xx", b"xxx", 1)
    assert not warmed(longer)


def test_a_head_of_many_short_headers_is_not_remembered() -> None:
    head = b"GET / HTTP/1.1\r\nHost: a\r\n%b\r\n"
    most = head % b"".join(b"X%d:\r\n" % number for number in range(REMEMBERED_HEADERS - 1))
    assert reader(warmed(most)).recall(most) is not None
    assert not warmed(head % b"".join(b"X%d:\r\n" % number for number in range(REMEMBERED_HEADERS)))


def test_only_so_many_heads_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "REMEMBERED_HEADS", 3)
    known = KnownHeads()
    for number in range(10):
        for _ in range(2):
            feed(reader(known), GET % number)
        assert GET % number in known, "the newest makes room for itself"
        assert len(known) <= 3
    assert len(warmed(GET % 1, GET % 2, GET % 3)) == 3


def test_a_head_that_came_long_ago_is_as_good_as_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "NOTICED_HEADS", 3)
    known = KnownHeads()
    one = reader(known)
    for number in (1, 2, 3, 4, 1):
        feed(one, GET % number)
        assert len(known._noticed) <= 3
    assert not known
    feed(one, GET % 1)
    assert list(known) == [GET % 1]


def test_heads_that_never_come_again_leave_nothing_behind() -> None:
    known = KnownHeads()
    one = reader(known)
    for number in range(heads.NOTICED_HEADS + 100):
        feed(one, GET % number)
    assert not known
    assert len(known._noticed) <= heads.NOTICED_HEADS


# Whatever comes, it means the same with the memory as without

ODD_LINES = [
    b"X: 1",
    b"x:2\t ",
    b"X:",
    b"X: \xe9\xff",
    b"X: a\x00b",
    b"X: a\r\n b",
    b"Cookie: a=1",
    b"cOOKIE: b=2",
    b"Host: b",
    b"Connection: close",
    b"connection: Keep-Alive",
    b"Upgrade: h2c",
    b"Connection: Upgrade\r\nUpgrade: h2c",
    b"Proxy-Connection: keep-alive",
    b"Expect: 100-continue",
    b"Expect: magic",
]
# What a request is made of, one after the other: the usual first, then what may stand in its place.
PARTS: list[list[bytes]] = [
    [b"", b"\r\n", b"\n", b"\r\n\r\n"],
    [b"POST", b"GET", b"PUT", b"HEAD", b"OPTIONS", b"QUERY", b"BREW"],
    [
        b" /s",
        b" /",
        b" /s?q=1?2",
        b" /sink",
        b" http://b:1/c?d",
        b" https://u@b",
        b" *",
        b" /a#b",
        b" nowhere",
    ],
    [b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b" HTTP/1.0\r\nConnection: keep-alive\r\n", b" HTTP/2.0\r\n"],
    [b"Host: a\r\n", b"hOST:a\r\n", b""],
]
BODIES = [b"hello", b"", b"\r\n\r\n", GET % 1, b"x" * 41]
FRAMINGS = [
    b"CONTENT-LENGTH:\t00%d \r\n",
    b"Content-Length: +%d\r\n",
    b"Content-Length: %d\r\nContent-Length: %d\r\n",
    b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n",
    b"Content-Length: 1%d\r\n",
    b"Content-Length: 2\r\n",
    b"",
]
CHUNKINGS = [b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"1;a=b\r\nx\r\n0\r\nHost: evil\r\nX: 1\r\n\r\n"]


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Requests with an oddity or two. With more, nearly all would be refused, and end their connections."""
    odd = draw(st.sets(st.integers(0, len(PARTS) + 2), max_size=2))
    beginning = [draw(st.sampled_from(part)) if at in odd else part[0] for at, part in enumerate(PARTS)]
    lines = draw(st.lists(st.sampled_from(ODD_LINES), max_size=3)) if len(PARTS) in odd else []
    body = draw(st.sampled_from(BODIES))
    framing = b"Content-Length: %d\r\n"
    if len(PARTS) + 1 in odd:
        framing = draw(st.sampled_from(FRAMINGS))
    elif len(PARTS) + 2 in odd:
        framing, body = b"Transfer-Encoding: chunked\r\n", draw(st.sampled_from(CHUNKINGS))
    framing = framing.replace(b"%d", b"%d" % len(body))
    return b"".join([*beginning, *(line + b"\r\n" for line in lines), framing, b"\r\n", body])


class Traffic(NamedTuple):
    messages: list[bytes]
    limits: Limits
    connections: list[list[bytes]]  # the pieces that come over each


@st.composite
def traffic(draw: st.DrawFn) -> Traffic:
    """A few messages, sent again and again: whole, several at once, cut anywhere, or broken off."""
    pool = draw(st.lists(messages(), min_size=1, max_size=4, unique=True))
    limits = draw(st.sampled_from([Limits(), Limits(target_bytes=8, header_bytes=60, header_count=3)]))
    connections = []
    for _ in range(draw(st.integers(1, 3))):
        data, edges = b"", {0}
        for message in draw(st.lists(st.sampled_from(pool), min_size=1, max_size=6)):
            kept = draw(st.integers(0, len(message))) if draw(st.integers(0, 5)) == 5 else len(message)
            data += message[:kept]
            if draw(st.integers(0, 4)) < 4:
                edges.add(len(data))
        edges.update((*draw(st.lists(st.integers(0, len(data)), max_size=2)), len(data)))
        connections.append([data[start:end] for start, end in pairwise(sorted(edges))])
    return Traffic(pool, limits, connections)


@given(traffic(), st.booleans())
def test_requests_mean_the_same_with_the_memory_as_without(sent: Traffic, secure: bool) -> None:
    known = warmed(*sent.messages, limits=sent.limits)
    for number, pieces in enumerate(sent.connections):
        client = f"192.0.2.{number}"
        remembering = reader(known, limits=sent.limits, client=client, secure=secure)
        plain = reader(limits=sent.limits, client=client, secure=secure)
        for piece in pieces:
            assert list(map(parts, receive(remembering, piece))) == list(map(parts, feed(plain, piece)))
            assert remembering.phase == plain.phase
            assert remembering.wants_continue == plain.wants_continue


# A server


def test_every_append_of_the_same_head_arrives_once_and_in_order(shared_server: ServerProcess) -> None:
    path = "/v1/stream/same-heads"
    plain = {"Content-Type": "text/plain"}
    bodies = [b"%06d\r\n\r\n" % number for number in range(600)]
    first, second, third = wires = [raw.Wire(shared_server.port) for _ in range(3)]
    try:
        assert first.request("PUT", path, plain).status == 201
        for number, body in enumerate(bodies):
            wire = first if number < 200 else wires[number % 3]
            request = raw.encode_request("POST", path, plain, body)
            cut = number * 7 % len(request) if number % 5 == 0 else len(request)
            wire.send(request[:cut])
            if cut < len(request):
                # The answer to another shows that the server has had its turn: two pieces stay two pieces.
                other = second if wire is third else third
                assert other.request("HEAD", path).status == 200
                wire.send(request[cut:])
            assert wire.answer("POST").status == 204
        assert first.request("GET", path, {"Accept-Encoding": "identity"}).body == b"".join(bodies)
    finally:
        for wire in wires:
            wire.close()
