"""How long a connection waits, and for what: `Connection.check`, tick by tick."""

import pytest

from perennial.http.limits import Limits
from tests.http.wire import (
    CHUNKED,
    GET,
    HIGH_WATER,
    POST,
    Application,
    Sink,
    Wire,
    follow,
    header,
    later,
    statuses,
)

# Time


def test_an_idle_connection_is_closed_without_a_word() -> None:
    wire = Wire()
    wire.feed(GET % 1)
    assert wire.wait(75) == b""
    assert wire.open
    assert wire.wait(1) == b""
    assert not wire.open


def test_a_connection_that_never_speaks_is_closed() -> None:
    wire = Wire()
    wire.wait(76)
    assert wire.lost


def test_idle_time_counts_from_the_last_answer() -> None:
    wire = later()
    wire.feed(GET % 1)
    wire.wait(300)
    wire.app.pending[0].respond(204, [])
    wire.wait(74)
    assert wire.open


@pytest.mark.parametrize("beginning", [b"G", b"GET / HTTP/1.1\r\nHost", b"\r\n"])
def test_headers_that_take_too_long_are_refused(beginning: bytes) -> None:
    wire = Wire()
    wire.feed(beginning)
    assert wire.wait(15) == b""
    answer = wire.wait(1)
    assert statuses(answer) == [408]
    assert header(answer, b"connection") == b"close"


def test_dripping_headers_buy_no_time() -> None:
    wire = Wire()
    wire.feed(b"GET / HTTP/1.1\r\nX: ")
    answer = b""
    for _ in range(16):
        answer += wire.feed(b"x") + wire.wait(1)
    assert statuses(answer) == [408]


def test_a_body_may_be_slow_but_not_stop() -> None:
    wire = Wire()
    wire.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n")
    for _ in range(5):
        assert wire.wait(29) == b""
        wire.feed(b"x")
    assert statuses(wire.wait(31)) == [408]


def test_chunk_framing_is_no_progress_of_a_body() -> None:
    wire = Wire()
    wire.feed(CHUNKED + b"5;x=")
    answer = b""
    for _ in range(31):
        answer += wire.feed(b"x") + wire.wait(1)
    assert statuses(answer) == [408]


def test_a_refused_slow_body_is_forgotten_by_its_sink() -> None:
    sink = Sink()
    wire = Wire(Application(sink=sink))
    wire.feed(POST + b"bo")
    wire.wait(31)
    assert (sink.fed, sink.abandoned) == ([b"bo"], 1)


def test_a_request_that_is_being_answered_has_all_the_time() -> None:
    wire = later()
    wire.feed(GET % 1 + b"GET / HT")
    wire.wait(1000)
    wire.app.pending[0].respond(204, [])
    assert statuses(wire.take()) == [204]
    assert wire.wait(14) == b""
    assert statuses(wire.wait(2)) == [408]


# Slow readers


def test_a_stream_is_not_writable_while_its_peer_does_not_read() -> None:
    wire, exchange, _ = follow()
    calls: list[str] = []
    exchange.on_writable = lambda: calls.append("writable")
    wire.transport.stuck = True
    assert exchange.writable
    exchange.send(bytes(HIGH_WATER))
    assert not exchange.writable
    wire.transport.release()
    assert exchange.writable
    assert calls == ["writable"]


def test_a_failure_of_a_woken_writer_breaks_the_answer_off(caplog: pytest.LogCaptureFixture) -> None:
    wire, exchange, _ = follow()

    def fail() -> None:
        raise RuntimeError("disk on fire")

    exchange.on_writable = fail
    wire.transport.stuck = True
    exchange.send(bytes(HIGH_WATER))
    wire.transport.release()
    assert "disk on fire" in caplog.text
    assert not wire.open


def test_a_peer_that_takes_nothing_for_a_minute_is_dropped() -> None:
    wire, exchange, _ = follow()
    gone: list[str] = []
    exchange.on_closed = lambda: gone.append("gone")
    wire.transport.stuck = True
    exchange.send(bytes(1000))
    wire.wait(60)
    assert wire.open
    wire.wait(1)
    assert wire.transport.aborted
    assert gone == ["gone"]
    assert exchange.closed


def test_a_slow_peer_is_not_a_stalled_one() -> None:
    wire, exchange, _ = follow()
    wire.transport.stuck = True
    exchange.send(bytes(1000))
    for _ in range(10):
        wire.wait(50)
        wire.transport.release(1)
    assert wire.open


def test_new_bytes_do_not_hide_a_stalled_peer() -> None:
    wire, exchange, _ = follow()
    wire.transport.stuck = True
    for _ in range(65):
        exchange.send(b"x")
        wire.wait(1)
    assert wire.transport.aborted


def test_an_idle_stream_is_not_stalled() -> None:
    wire, exchange, _ = follow()
    exchange.send(b"x")
    wire.wait(3600)
    assert wire.open
    assert not exchange.closed


def test_a_closing_connection_does_not_wait_for_ever() -> None:
    wire = Wire()
    wire.transport.stuck = True
    wire.feed(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert not wire.open
    wire.wait(60)
    assert not wire.lost
    wire.wait(1)
    assert wire.lost


# Lingering


@pytest.mark.parametrize(
    ("status", "data"),
    [
        (413, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n" + bytes(1000)),
        (431, b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 200),
        (414, b"GET /" + b"x" * 9000),
        (400, b"GET / HTTP/1.1\r\nno colon\r\n"),
    ],
)
def test_an_early_refusal_is_read_before_the_connection_goes(status: int, data: bytes) -> None:
    wire = Wire()
    answer = wire.feed(data)
    assert statuses(answer) == [status]
    assert header(answer, b"connection") == b"close"
    assert wire.app.refusals[0][0] == status
    assert wire.transport.eof
    assert wire.open
    assert wire.feed(bytes(100_000), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n") == b""
    wire.end_of_file()
    assert wire.lost


def test_lingering_takes_only_so_long() -> None:
    wire = Wire()
    wire.feed(b"nonsense")
    wire.wait(5)
    assert wire.open
    wire.wait(1)
    assert wire.lost


def test_lingering_reads_only_so_much() -> None:
    wire = Wire(limits=Limits(linger_bytes=1000))
    wire.feed(b"nonsense", bytes(1000))
    assert wire.open
    wire.feed(b"x")
    assert wire.lost
