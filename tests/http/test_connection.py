import asyncio

import pytest

from perennial.http.connection import STEPS_PER_TURN
from perennial.http.exchange import SharedChunk
from perennial.http.limits import Limits
from tests.http.wire import (
    GET,
    HIGH_WATER,
    POST,
    Application,
    Sink,
    Wire,
    follow,
    header,
    later,
    split,
    statuses,
)

EXPECTING = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


# Keeping and closing


def test_a_connection_is_kept_for_the_next_request() -> None:
    wire = Wire()
    for number in range(3):
        assert split(wire.feed(GET % number))[1] == b"GET /%d " % number
    assert wire.open


@pytest.mark.parametrize(
    ("request_line", "connection", "answer", "stays"),
    [
        (b"GET / HTTP/1.1", b"close", b"close", False),
        (b"GET / HTTP/1.1", b"keep-alive", None, True),
        (b"GET / HTTP/1.0", b"keep-alive", b"keep-alive", True),
        (b"GET / HTTP/1.0", b"close", b"close", False),
        (b"GET / HTTP/1.0", b"", b"close", False),
    ],
)
def test_an_answer_says_whether_the_connection_stays(
    request_line: bytes, connection: bytes, answer: bytes | None, stays: bool
) -> None:
    wire = Wire()
    sent = wire.feed(b"%b\r\nHost: a\r\nConnection: %b\r\n\r\n" % (request_line, connection))
    assert header(sent, b"connection") == answer
    assert wire.open is stays


# Pipelining


def test_requests_are_handled_one_at_a_time_and_in_order() -> None:
    wire = later()
    wire.feed(GET % 1 + GET % 2, GET % 3)
    for number in (1, 2, 3):
        assert [request.path for request in wire.app.seen] == [b"/%d" % n for n in range(1, number + 1)]
        wire.app.pending[-1].respond(200, [], b"%d" % number)
        assert split(wire.take())[1] == b"%d" % number


def test_a_refusal_waits_for_its_turn() -> None:
    wire = later()
    assert wire.feed(GET % 1 + b"nonsense\r\n\r\n") == b""
    wire.app.pending[0].respond(200, [])
    assert statuses(wire.take()) == [200, 501]


def test_a_peer_that_sends_too_far_ahead_is_not_read_any_more() -> None:
    wire = Wire(Application(answer=None), Limits(pipeline_bytes=1000))
    wire.feed(GET % 1)
    sent = 0
    while wire.transport.reading:
        wire.feed(GET % 2)
        sent += 1
    assert sent == 1000 // len(GET % 2) + 1
    wire.app.answer = lambda exchange: exchange.respond(204, [])

    async def go_on() -> None:
        wire.app.pending[0].respond(204, [])
        await turns(2)

    asyncio.run(go_on())
    assert len(wire.app.seen) == 1 + sent
    assert wire.transport.reading


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_many_pipelined_requests_are_all_answered_but_not_in_one_turn() -> None:
    wire = Wire()

    async def send_all() -> None:
        wire.feed(b"".join(GET % number for number in range(2000)))
        assert len(wire.app.seen) <= STEPS_PER_TURN
        wire.feed(GET % 2000)
        await turns(100)

    asyncio.run(send_all())
    assert [request.path for request in wire.app.seen] == [b"/%d" % number for number in range(2001)]


def test_a_pipelined_request_waits_for_the_peer_to_read() -> None:
    wire = Wire(Application(lambda exchange: exchange.respond(200, [], bytes(HIGH_WATER))))
    wire.transport.stuck = True
    wire.feed(GET % 1 + GET % 2, GET % 3)
    assert len(wire.app.seen) == 1
    wire.transport.release()
    assert len(wire.app.seen) == 3
    assert statuses(wire.take()) == [200, 200, 200]


# Expect: 100-continue


def test_a_body_is_asked_for_and_then_answered() -> None:
    wire = Wire()
    assert wire.feed(EXPECTING) == CONTINUE
    assert split(wire.feed(b"body"))[1] == b"POST / body"


def test_a_body_that_is_there_already_is_not_asked_for() -> None:
    assert statuses(Wire().feed(EXPECTING + b"body")) == [200]


def test_a_body_that_is_too_large_is_not_asked_for() -> None:
    assert statuses(Wire(Application(body_limit=3)).feed(EXPECTING)) == [413]


def test_a_body_is_asked_for_only_when_its_turn_has_come() -> None:
    wire = later()
    assert wire.feed(GET % 1 + EXPECTING) == b""
    wire.app.pending[0].respond(204, [])
    assert statuses(wire.take()) == [204, 100]
    wire.feed(b"body")
    assert wire.app.seen[1].body == b"body"


# Peers that leave


def test_a_waiting_exchange_is_told_that_its_peer_is_gone() -> None:
    wire = later()
    wire.feed(GET % 1)
    (exchange,) = wire.app.pending
    gone: list[str] = []
    exchange.on_closed = lambda: gone.append("gone")
    wire.connection.connection_lost(ConnectionResetError())
    assert (gone, exchange.closed, exchange.writable) == (["gone"], True, False)
    exchange.respond(200, [])
    exchange.send_shared(SharedChunk(b"x"))
    assert wire.take() == b""
    assert not wire.state.connections


def test_an_answered_exchange_is_told_nothing() -> None:
    wire = later()
    wire.feed(GET % 1)
    (exchange,) = wire.app.pending
    gone: list[str] = []
    exchange.on_closed = lambda: gone.append("gone")
    exchange.respond(204, [])
    wire.end_of_file()
    assert wire.lost
    assert gone == []


def test_a_follower_that_leaves_is_gone_at_once() -> None:
    wire, exchange, _ = follow()
    wire.transport.stuck = True
    exchange.send(b"unread")
    wire.end_of_file()
    assert wire.lost
    assert exchange.closed


def test_a_peer_that_has_said_all_is_still_answered() -> None:
    wire = later()
    wire.feed(GET % 1, GET % 2)
    wire.end_of_file()
    wire.app.pending[0].respond(200, [])
    wire.app.pending[1].respond(200, [])
    assert statuses(wire.take()) == [200, 200]
    assert wire.lost


def test_a_peer_that_has_said_all_is_not_waited_for() -> None:
    wire = later()
    wire.feed(GET % 1)
    wire.end_of_file()
    wire.wait(2)
    assert wire.open
    wire.wait(1)
    assert wire.app.pending[0].closed
    assert wire.lost


def test_a_body_cut_short_is_forgotten_by_its_sink() -> None:
    sink = Sink()
    wire = Wire(Application(sink=sink))
    wire.feed(POST + b"bo")
    wire.end_of_file()
    assert wire.lost
    assert sink.abandoned == 1
    assert wire.app.seen == []


def test_a_complete_body_that_nobody_will_handle_is_forgotten_by_its_sink() -> None:
    sink = Sink()
    wire = Wire(Application(answer=None, sink=sink))
    wire.feed(GET % 1 + POST + b"body")
    wire.connection.connection_lost(None)
    assert sink.abandoned == 1


# Draining


def drain(wire: Wire) -> None:
    wire.state.draining = True
    wire.connection.drain()


def test_draining_closes_idle_connections_at_once() -> None:
    wire = Wire()
    wire.feed(GET % 1)
    drain(wire)
    assert not wire.open


def test_draining_lets_an_answer_finish() -> None:
    wire = later()
    wire.feed(GET % 1)
    drain(wire)
    assert wire.open
    wire.app.pending[0].respond(200, [])
    assert header(wire.take(), b"connection") == b"close"
    assert wire.lost


def test_draining_lets_a_request_arrive() -> None:
    wire = Wire()
    wire.feed(POST + b"bo")
    drain(wire)
    answer = wire.feed(b"dy")
    assert statuses(answer) == [200]
    assert header(answer, b"connection") == b"close"
    assert wire.lost


def test_draining_leaves_further_requests_to_another_server() -> None:
    wire = later()
    wire.feed(GET % 1 + GET % 2)
    drain(wire)
    wire.app.pending[0].respond(204, [])
    assert statuses(wire.take()) == [204]
    assert len(wire.app.seen) == 1
    wire.end_of_file()
    assert wire.lost


def test_a_stream_that_ends_while_draining_closes_its_connection() -> None:
    wire, exchange, _ = follow()
    drain(wire)
    assert wire.open
    exchange.end()
    assert wire.take() == b"0\r\n\r\n"
    assert wire.lost
