"""Lanes: which requests have one, and how a connection behaves while a request is in one."""

import logging
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perennial.http.application import Application
from perennial.http.exchange import Exchange, Lane, Request, Waiting
from perennial.http.lanes import LONGEST_PATH, AppendAnswers
from perennial.http.traffic import Tally
from perennial.protocol.rejections import StreamMissing
from perennial.protocol.state import grown
from perennial.settings import Settings
from perennial.store.errors import StoreError, StoreFull
from tests.builders import stream
from tests.harness.garbage import no_garbage_collection
from tests.http import wire
from tests.http.served import Served
from tests.http.wire import Wire, header, split, statuses

APPEND = b"POST /v1/stream/s HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\n"
CREATE = b"PUT /v1/stream/s HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """With an empty text stream, and a lane to it."""
    with Served(tmp_path / "data") as served:
        assert statuses(served.say(served.peer(), CREATE)) == [201]
        served.learn(APPEND + b"1234")
        yield served


# Which requests have a lane

PLAIN = {b"host": "a", b"content-type": "text/plain", b"content-length": "4"}


def lane_of(app: Application, headers: dict[bytes, str], **parts: Any) -> Lane | None:
    parts = {"method": "POST", "path": b"/v1/stream/s", "query": b"", "body": b"1234"} | parts
    return app.lane(Request(headers={**PLAIN, **headers}, **parts))


@pytest.mark.parametrize(
    ("headers", "parts"),
    [
        pytest.param({}, {"method": "PUT"}, id="creation"),
        pytest.param({}, {"method": "GET"}, id="read"),
        pytest.param({}, {"path": b"/ds/default/s"}, id="other surface"),
        pytest.param({}, {"path": b"/v1/proxy/s"}, id="proxy"),
        pytest.param({}, {"path": b"/v1/stream/__ds/s"}, id="reserved name"),
        pytest.param({}, {"path": b"/v1/stream/a/../s"}, id="malformed name"),
        pytest.param({}, {"path": b"/v1/stream/%zz"}, id="malformed path"),
        pytest.param({}, {"path": b"/v1/stream/" + b"s" * (LONGEST_PATH - 10)}, id="long path"),
        pytest.param({}, {"body": b""}, id="no body"),
        pytest.param({b"content-type": "nonsense"}, {}, id="malformed content type"),
        pytest.param({b"origin": "https://a.example"}, {}, id="browser"),
        pytest.param({b"x-request-id": "mine"}, {}, id="request id"),
        pytest.param({b"stream-closed": "true"}, {}, id="close"),
        pytest.param({b"stream-closed": "false"}, {}, id="no close"),
        pytest.param({b"stream-seq": "a"}, {}, id="sequence"),
        pytest.param({b"producer-id": "p"}, {}, id="producer"),
        pytest.param({b"producer-epoch": "0"}, {}, id="part of a producer"),
        pytest.param({b"producer-seq": "0"}, {}, id="another part"),
    ],
)
def test_only_plain_appends_have_a_lane(served: Served, headers: dict[bytes, str], parts: Any) -> None:
    assert lane_of(served.app, {}) is not None
    assert lane_of(served.app, headers, **parts) is None


def test_a_path_of_the_longest_kind_has_a_lane(served: Served) -> None:
    assert lane_of(served.app, {}, path=b"/v1/stream/" + b"s" * (LONGEST_PATH - 11)) is not None


@pytest.mark.parametrize(
    "settings",
    [
        {"auth_tokens": ("secret",)},
        {"jwt_secret": "s" * 32},
        {"access_log": True},
        {"rate_requests": 1e9},
        {"rate_bytes": 1e9},
        {"trusted_proxies": ("192.0.2.0/24",)},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_a_server_that_looks_at_every_request_makes_no_lanes(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    with Served(tmp_path / "data", **settings) as served:
        assert lane_of(served.app, {}) is None
        assert lane_of(served.app, {b"authorization": "Bearer secret"}) is None


def test_tokens_that_come_later_are_for_the_next_start(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """So a lane made before cannot let anyone in."""
    served.app.reload(Settings(auth_tokens=("secret",)))
    assert "stays off" in caplog.text
    assert statuses(served.say(served.peer(), APPEND + b"1234")) == [204]


# While a request is in a lane


def test_the_peer_hears_when_it_is_durable(served: Served) -> None:
    peer = served.peer()
    served.do(lambda: peer.send(APPEND + b"1234"))
    assert peer.take() == b""
    served.settle()
    answer = peer.take()
    assert (statuses(answer), header(answer, b"stream-next-offset")) == ([204], b"%016d" % 4)


def test_what_comes_meanwhile_waits_its_turn(served: Served) -> None:
    peer = served.peer()
    served.do(lambda: peer.send(APPEND + b"1111", APPEND + b"2222", CREATE.replace(b"PUT", b"GET") + APPEND))
    assert peer.take() == b""
    served.settle()
    assert statuses(peer.take()) == [204, 204, 200]
    assert statuses(served.say(peer, b"3333")) == [204]
    assert served.world.read() == b"111122223333"


def test_a_peer_that_does_not_read_is_not_listened_to(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "HIGH_WATER", 10)
    peer = served.peer()
    peer.stall()
    assert served.say(peer, APPEND + b"1111") == b""
    assert served.say(peer, APPEND + b"2222") == b""
    assert served.world.read() == b"1111"
    served.do(peer.go_on)
    served.settle()
    assert statuses(peer.take()) == [204, 204]
    assert served.world.read() == b"11112222"


def test_a_connection_is_as_young_as_its_last_answer(served: Served) -> None:
    peer = served.peer()
    for _ in range(3):
        served.state.now += served.state.limits.idle_seconds * 0.9
        assert statuses(served.say(peer, APPEND + b"1234")) == [204]
        peer.connection.check(served.state.now)
        assert not peer.transport.closing
    peer.connection.check(served.state.now + served.state.limits.idle_seconds * 1.1)
    assert peer.transport.closing


def test_a_server_that_stops_answers_first_and_says_that_it_goes(served: Served) -> None:
    peer, idle = served.peer(), served.peer()
    served.do(lambda: peer.send(APPEND + b"1234"))
    served.do(served.drain)
    assert idle.transport.closing
    assert not peer.transport.closing
    served.settle()
    answer = peer.take()
    assert statuses(answer) == [204]
    assert header(answer, b"connection") == b"close"
    assert peer.transport.closing
    assert served.world.read() == b"1234"


def test_a_disk_that_takes_nothing_is_told_and_the_next_attempt_is_a_fresh_one(served: Served) -> None:
    peer = served.peer()
    served.world.store.fail_writes = StoreFull("no space left")
    for _ in range(2):
        answer = served.say(peer, APPEND + b"1234")
        assert statuses(answer) == [503]
        assert b"NOT_STORED" in split(answer)[1]
        assert header(answer, b"retry-after") == b"1"
    served.world.store.fail_writes = None
    assert header(served.say(peer, APPEND + b"1234"), b"stream-next-offset") == b"%016d" % 4
    assert ("stream", "POST", 503, 2) in served.tallies()


def test_after_a_failed_sync_every_append_is_refused(served: Served) -> None:
    peer = served.peer()
    served.world.store.fail_syncs = StoreError("input/output error")
    for _ in range(3):
        assert statuses(served.say(peer, APPEND + b"1234")) == [503]
    assert served.world.read() == b""


# When a lane fails


def fail(*arguments: Any) -> bool:
    raise RuntimeError("a mistake of ours")


def test_a_lane_that_fails_answers_500_once_and_the_connection_ends(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    peer = served.peer()
    monkeypatch.setattr(served.world.service, "append_plainly", fail)
    with caplog.at_level(logging.WARNING):
        answer = served.say(peer, APPEND + b"1234")
    assert len(caplog.records) == 1
    assert "a mistake of ours" in caplog.text
    assert header(answer, b"connection") == b"close"
    assert peer.transport.eof
    assert ("stream", "POST", 500, 1) in served.tallies()
    assert served.say(peer, APPEND + b"1234") == b""
    with Served(tmp_path / "without lanes", lanes=False) as other:
        monkeypatch.setattr(other.world.service, "append", fail)
        usual = other.say(other.peer(), APPEND + b"1234")
    assert answer.replace(b"connection: close\r\n", b"") == usual, "as it is said without lanes"


class Line:
    """A connection that hears its answer, or cannot."""

    def __init__(self, breaks: bool = False, gone: bool = False) -> None:
        self.breaks = breaks
        self.gone = gone
        self.heard: list[bytes] = []
        self.asked = 0

    def acknowledge(self, headers: bytes) -> bool:
        if self.breaks:
            raise RuntimeError("a mistake of ours")
        self.heard.append(headers)
        return not self.gone

    def make_exchange(self) -> Exchange | None:
        self.asked += 1
        if self.breaks:
            raise RuntimeError("a mistake of ours")
        return None


def test_an_answer_that_fails_does_not_keep_the_others_of_its_commit_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tally = Tally()
    answers = AppendAnswers(tally)
    lines = [Line(), Line(breaks=True), Line(gone=True), Line()]
    waiting = [(line, grown(stream(), number, 0)) for number, line in enumerate(lines)]
    with caplog.at_level(logging.WARNING):
        answers.stored(waiting)
    assert [len(line.heard) for line in lines] == [1, 0, 1, 1]
    assert lines[3].heard == [b"stream-next-offset: 0000000000000003\r\n"]
    assert tally == {204: 2}
    answers.refused(waiting, StreamMissing())
    assert [line.asked for line in lines] == [1, 1, 1, 1]
    assert caplog.text.count("an answer failed") == 2


class Strange(Lane):
    """Does what it was made for, and then fails."""

    def __init__(self, first: str, fails: bool = True) -> None:
        self.first = first
        self.fails = fails
        self.line: Waiting | None = None

    def enter(self, line: Waiting, body: bytes) -> None:
        self.line = line
        if self.first == "acknowledge":
            line.acknowledge(b"\r\n")
        elif self.first == "answer":
            exchange = line.make_exchange()
            assert exchange is not None
            exchange.respond(200, [])
        elif self.first == "begin":
            line.make_exchange()
        if self.fails:
            raise RuntimeError("a mistake of ours")


class Laned(wire.Application):
    def __init__(self, lane: Lane) -> None:
        super().__init__()
        self.known: Lane | None = lane

    def lane(self, request: Request) -> Lane | None:
        return self.known

    def handle(self, exchange: Exchange) -> None:
        exchange.respond(200, [])


@pytest.mark.parametrize("first", ["ask for an answer", "begin"])
def test_an_answer_that_comes_after_a_failure_reaches_nobody(first: str) -> None:
    lane = Strange(first)
    wired = Wire(Laned(lane))
    answers = [statuses(wired.feed(APPEND + b"1234")) for _ in range(3)]
    assert answers == [[200], [200], [500]]
    assert lane.line is not None
    assert not lane.line.acknowledge(b"\r\n")
    assert lane.line.make_exchange() is None
    assert wired.take() == b""


@pytest.mark.parametrize("first", ["acknowledge", "answer"])
def test_a_lane_that_fails_after_its_answer_does_not_answer_twice(
    first: str, caplog: pytest.LogCaptureFixture
) -> None:
    wired = Wire(Laned(Strange(first)))
    answers = [statuses(wired.feed(APPEND + b"1234")) for _ in range(4)]
    assert [len(each) for each in answers] == [1, 1, 1, 1]
    assert len(caplog.records) == 2
    assert wired.open


def test_a_connection_keeps_nothing_of_a_lane_it_has_left() -> None:
    """Heads are forgotten when there are too many; connections that used them may live for long."""
    app = Laned(Strange("acknowledge", fails=False))
    wired = Wire(app)
    with no_garbage_collection():
        for _ in range(3):
            wired.feed(APPEND + b"1234")
        assert app.known is not None
        gone = weakref.ref(app.known)
        app.known = None
        wired.state.known_heads.clear()
        assert gone() is None
    assert wired.open
