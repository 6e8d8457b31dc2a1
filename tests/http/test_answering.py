import logging
import weakref
from collections.abc import Callable

import pytest

from perennial.http.exchange import COMMON_HEADERS, Exchange, SharedChunk
from perennial.http.observed import ObservedExchange
from tests.harness.garbage import no_garbage_collection
from tests.http.wire import (
    GET,
    Application,
    Wire,
    follow,
    header,
    later,
    split,
    statuses,
)

# Answers


def test_an_answer_has_a_length_a_date_and_the_common_headers() -> None:
    wire = Wire(Application(lambda exchange: exchange.respond(200, [(b"x-own", b"1")], b"hello")))
    answer = wire.feed(GET % 1)
    assert split(answer)[1] == b"hello"
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert header(answer, b"content-length") == b"5"
    assert header(answer, b"date") == b"Thu, 01 Jan 1970 00:00:00 GMT"
    assert header(answer, b"x-own") == b"1"
    assert header(answer, b"connection") is None
    for name, value in COMMON_HEADERS:
        assert header(answer, name) == value


def test_a_write_from_outside_a_browser_is_spared_the_headers_for_browsers() -> None:
    wire = Wire()
    plain = wire.feed(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
    assert header(plain, b"access-control-allow-origin") is None
    assert header(plain, b"x-content-type-options") == b"nosniff"
    browser = wire.feed(b"POST / HTTP/1.1\r\nhost: x\r\norigin: http://a\r\ncontent-length: 0\r\n\r\n")
    assert header(browser, b"access-control-allow-origin") == b"*"


def test_the_date_moves_with_the_clock() -> None:
    wire = Wire()
    wire.feed(GET % 1)
    wire.state.set_time(86400.0)
    assert header(wire.feed(GET % 2), b"date") == b"Fri, 02 Jan 1970 00:00:00 GMT"


def test_an_answer_is_one_write() -> None:
    pieces: list[bytes | memoryview] = [b"some ", memoryview(b"thing ")[:3], b"thing"]
    wire = Wire(Application(lambda exchange: exchange.respond(200, [], pieces)))
    assert split(wire.feed(GET % 1))[1] == b"some thithing"
    assert [len(call) for call in wire.transport.calls] == [1]


def test_large_bodies_are_not_copied() -> None:
    body: list[bytes | memoryview] = [bytes(100_000), memoryview(bytes(200_000))]
    wire = Wire(Application(lambda exchange: exchange.respond(200, [], body)))
    answer = wire.feed(GET % 1)
    assert header(answer, b"content-length") == b"300000"
    assert split(answer)[1] == bytes(300_000)
    (call,) = wire.transport.calls
    assert call[-2] is body[0]
    assert call[-1] is body[1]


@pytest.mark.parametrize("status", [204, 304])
def test_some_statuses_never_have_a_body(status: int) -> None:
    wire = Wire(Application(lambda exchange: exchange.respond(status, [], b"ignored")))
    answer = wire.feed(GET % 1)
    assert split(answer)[1] == b""
    assert header(answer, b"content-length") is None


@pytest.mark.parametrize(("body", "length"), [(b"hello", b"5"), (b"", None)])
def test_head_is_answered_without_a_body(body: bytes, length: bytes | None) -> None:
    wire = Wire(Application(lambda exchange: exchange.respond(200, [], body)))
    answer = wire.feed(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert split(answer)[1] == b""
    assert header(answer, b"content-length") == length
    assert wire.open


def test_an_unknown_status_is_sent_as_it_is() -> None:
    wire = Wire(Application(lambda exchange: exchange.respond(599, [])))
    assert statuses(wire.feed(GET % 1)) == [599]


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\rb"])
def test_a_line_break_in_a_header_is_never_sent(value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire(Application(lambda exchange: exchange.respond(200, [(b"x", value)])))
    with caplog.at_level(logging.CRITICAL):
        assert statuses(wire.feed(GET % 1)) == [500]


@pytest.mark.parametrize("begun", [False, True])
def test_a_failing_handler_is_logged_and_never_leaves_the_peer_waiting(
    begun: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(exchange: Exchange) -> None:
        if begun:
            exchange.begin(200, [])
        raise RuntimeError("disk on fire")

    wire = Wire(Application(fail))
    answer = wire.feed(GET % 1)
    assert statuses(answer) == [200 if begun else 500]
    assert not split(answer)[1]
    assert b"fire" not in answer
    assert "disk on fire" in caplog.text
    assert not wire.open


def test_an_answer_is_given_once() -> None:
    wire = later()
    wire.feed(GET % 1)
    (exchange,) = wire.app.pending
    exchange.respond(204, [])
    exchange.respond(200, [])
    exchange.begin(200, [])
    exchange.send(b"x")
    exchange.end()
    exchange.abort()
    assert statuses(wire.take()) == [204]
    assert wire.open


# Streaming


def test_a_stream_is_sent_in_chunks() -> None:
    wire, exchange, head = follow()
    assert header(head, b"transfer-encoding") == b"chunked"
    assert header(head, b"content-length") is None
    exchange.send(b"hello")
    assert wire.take() == b"5\r\nhello\r\n"
    exchange.send(b"")
    assert wire.take() == b""
    exchange.send_shared(SharedChunk(b"x" * 26))
    assert wire.take() == b"1a\r\n" + b"x" * 26 + b"\r\n"
    assert not exchange.closed
    exchange.end()
    assert wire.take() == b"0\r\n\r\n"
    assert exchange.closed
    wire.feed(GET % 2)
    assert len(wire.app.pending) == 2


def test_each_chunk_is_one_write() -> None:
    wire, exchange, _ = follow()
    before = len(wire.transport.calls)
    large = bytes(100_000)
    exchange.send(b"small")
    exchange.send(large)
    assert len(wire.transport.calls) == before + 2
    assert wire.transport.calls[-1][1] is large
    assert wire.take() == b"5\r\nsmall\r\n186a0\r\n" + large + b"\r\n"


def test_a_shared_chunk_is_framed_once() -> None:
    chunk = SharedChunk(b"event")
    wires = [follow() for _ in range(3)]
    for _, exchange, _ in wires:
        exchange.send_shared(chunk)
    buffers = {id(wire.transport.calls[-1][0]) for wire, _, _ in wires}
    assert len(buffers) == 1
    assert all(wire.take() == b"5\r\nevent\r\n" for wire, _, _ in wires)


def test_http_1_0_is_streamed_until_the_close() -> None:
    wire, exchange, head = follow(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert header(head, b"transfer-encoding") is None
    assert header(head, b"connection") == b"close"
    exchange.send(b"one")
    exchange.send_shared(SharedChunk(b"two"))
    assert wire.open
    exchange.end()
    assert wire.take() == b"onetwo"
    assert not wire.open


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize(("method", "status"), [(b"HEAD", 200), (b"GET", 204), (b"GET", 304)])
def test_a_stream_that_may_have_no_body_has_none(version: bytes, method: bytes, status: int) -> None:
    wire = later()
    wire.feed(b"%b / HTTP/%b\r\nHost: a\r\nConnection: keep-alive\r\n\r\n" % (method, version))
    (exchange,) = wire.app.pending
    exchange.begin(status, [])
    exchange.send(b"x")
    exchange.send_shared(SharedChunk(b"y"))
    exchange.end()
    answer = wire.take()
    assert split(answer)[1] == b""
    assert header(answer, b"transfer-encoding") is None
    assert wire.open


def test_a_broken_off_chunked_answer_lacks_its_end() -> None:
    wire, exchange, _ = follow()
    gone: list[str] = []
    exchange.on_closed = lambda: gone.append("gone")
    exchange.send(b"x")
    exchange.abort()
    assert wire.take() == b"1\r\nx\r\n"
    assert not wire.open
    assert not wire.transport.aborted
    assert exchange.closed
    assert gone == ["gone"]


def test_a_broken_off_http_1_0_answer_is_reset() -> None:
    wire, exchange, _ = follow(b"GET / HTTP/1.0\r\n\r\n")
    exchange.abort()
    assert wire.transport.aborted


# Letting go


class Follower:
    """Holds its exchange, and its exchange holds it."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        exchange.on_closed = exchange.on_writable = self.noop
        exchange.begin(200, [])

    def noop(self) -> None:
        pass


@pytest.mark.parametrize(
    "finish",
    [
        lambda exchange, wire: exchange.end(),
        lambda exchange, wire: exchange.abort(),
        lambda exchange, wire: wire.connection.connection_lost(None),
    ],
    ids=["ended", "broken off", "peer gone"],
)
@pytest.mark.parametrize("observed", [False, True])
def test_an_answer_that_is_over_holds_nobody_and_is_held_by_nobody(
    finish: Callable[[Exchange, Wire], None], observed: bool
) -> None:
    wire = later()
    wire.feed(GET % 1)
    exchange = wire.app.pending.pop()
    if observed:
        exchange = ObservedExchange(exchange, [], lambda exchange, broken: None)
    with no_garbage_collection():
        follower = Follower(exchange)
        gone = weakref.ref(follower)
        del follower
        assert gone() is not None, "while the answer lasts"
        finish(exchange, wire)
        del exchange
        assert gone() is None
