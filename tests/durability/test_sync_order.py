"""First the disk, then the world: nothing is answered, and nothing can be read, before it is durable."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from tests.harness.gate import GatedServer
from tests.harness.wire import Answer, Wire

TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
# How long silence must last to be believed. Everything is over loopback, and the server is otherwise idle.
SILENCE_SECONDS = 0.15

Headers = dict[str, str]

_numbers = count()


class Wires:
    """Connections to a server, as many as a test needs, and stream names of the test's own."""

    def __init__(self, server: GatedServer, stack: ExitStack) -> None:
        self._server = server
        self._stack = stack
        self._root = f"/v1/stream/{next(_numbers)}/"

    def ask(self, method: str, path: str, headers: Headers | None = None, body: bytes = b"") -> Wire:
        """A request of which the answer is still to come."""
        wire = self._stack.enter_context(Wire(self._server.port))
        wire.ask(method, self._root + path, self._addressed(headers), body)
        return wire

    def get(self, method: str, path: str, headers: Headers | None = None, body: bytes = b"") -> Answer:
        with Wire(self._server.port) as wire:
            return wire.request(method, self._root + path, self._addressed(headers), body)

    def _addressed(self, headers: Headers | None) -> Headers:
        return {
            name: self._root + value if name == "Stream-Forked-From" else value
            for name, value in (headers or {}).items()
        }


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatedServer]:
    """For tests that only hold the disk back."""
    with GatedServer(tmp_path_factory.mktemp("steady") / "data") as running:
        yield running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GatedServer]:
    """For tests that break the disk: there is no way back from that, so each has its own."""
    with GatedServer(tmp_path / "data") as running:
        yield running


@pytest.fixture
def wires(request: pytest.FixtureRequest) -> Iterator[Wires]:
    """To whichever of the two servers the test uses."""
    name = "server" if "server" in request.fixturenames else "steady"
    with ExitStack() as stack:
        yield Wires(request.getfixturevalue(name), stack)


def producer(seq: int, epoch: int = 0) -> Headers:
    return {"Producer-Id": "p", "Producer-Epoch": str(epoch), "Producer-Seq": str(seq)}


WRITES: list[tuple[str, str, Headers, bytes, int]] = [
    ("POST", "there", TEXT, b"more", 204),
    ("POST", "there", TEXT | producer(0), b"more", 200),
    ("POST", "there", {"Stream-Closed": "true"}, b"", 204),
    ("POST", "there", TEXT | {"Stream-Closed": "true"}, b"more", 204),
    ("PUT", "new", TEXT, b"", 201),
    ("PUT", "new", JSON, b"[1,2]", 201),
    ("PUT", "new", {"Stream-Forked-From": "there"}, b"", 201),
    ("DELETE", "there", {}, b"", 204),
]


@pytest.mark.parametrize(
    "write",
    WRITES,
    ids=["append", "produce", "close", "append+close", "create", "create json", "fork", "delete"],
)
def test_no_write_is_answered_or_seen_before_it_is_durable(
    steady: GatedServer, wires: Wires, write: tuple[str, str, Headers, bytes, int]
) -> None:
    method, name, headers, body, status = write
    wires.get("PUT", "there", TEXT, b"before")

    def look() -> list[tuple[int, str | None, str | None, bytes]]:
        answers = [wires.get(how, path) for how in ("HEAD", "GET") for path in ("there", "new")]
        return [
            (a.status, a.headers.get("stream-next-offset"), a.headers.get("stream-closed"), a.body)
            for a in answers
        ]

    before = look()
    steady.hold()
    writer = wires.ask(method, name, headers, body)
    steady.wait_until_held()
    assert look() == before
    assert writer.is_quiet(SILENCE_SECONDS)
    assert look() == before

    steady.release()
    assert writer.answer().status == status
    assert look() != before


def test_live_readers_wake_when_the_disk_has_it_and_not_before(steady: GatedServer, wires: Wires) -> None:
    wires.get("PUT", "s", TEXT, b"before")
    sse = wires.ask("GET", "s?offset=-1&live=sse")
    assert sse.head()[0] == 200
    events = sse.events()
    assert [next(events).kind, next(events).kind] == ["data", "control"]
    poll = wires.ask("GET", "s?offset=0000000000000006&live=long-poll")
    wires.get("HEAD", "s")  # the loop has been around: both wait by now

    steady.hold()
    writer = wires.ask("POST", "s", TEXT, b"more")
    steady.wait_until_held()
    late = wires.ask("GET", "s?offset=now&live=long-poll")
    assert late.is_quiet(SILENCE_SECONDS)
    assert poll.is_quiet()
    assert sse.is_quiet()
    assert writer.is_quiet()

    steady.release()
    assert writer.answer().status == 204
    assert [poll.answer().body, late.answer().body] == [b"more", b"more"]
    assert next(events).data == "more"
    assert next(events).control["streamNextOffset"] == "0000000000000010"


def test_an_answer_about_another_request_waits_for_what_it_says(steady: GatedServer, wires: Wires) -> None:
    """`You sent this before`, `it is closed`, `it exists`: said of something a crash could take back."""
    wires.get("PUT", "s", TEXT)
    steady.hold()
    first = [wires.ask("POST", "s", TEXT | producer(0), b"one")]
    steady.wait_until_held()
    echoes = [
        wires.ask("POST", "s", TEXT | producer(0), b"one"),  # a repeat of what is not durable yet
        wires.ask("POST", "s", TEXT | producer(2), b"three"),  # a gap after it
    ]
    assert echoes[0].is_quiet(SILENCE_SECONDS)
    steady.release()
    assert [wire.answer().status for wire in first + echoes] == [200, 204, 409]

    steady.hold()
    first = [wires.ask("POST", "s", {"Stream-Closed": "true"}), wires.ask("PUT", "t", TEXT)]
    steady.wait_until_held()
    echoes = [
        wires.ask("POST", "s", {"Stream-Closed": "true"}),
        wires.ask("POST", "s", TEXT, b"late"),
        wires.ask("PUT", "t", TEXT),
        wires.ask("PUT", "t", JSON),
    ]
    assert echoes[-1].is_quiet(SILENCE_SECONDS)
    assert all(wire.is_quiet() for wire in echoes)
    steady.release()
    assert [wire.answer().status for wire in first + echoes] == [204, 201, 204, 409, 200, 409]


def test_while_one_commit_is_held_the_next_one_fills(steady: GatedServer, wires: Wires) -> None:
    wires.get("PUT", "s", TEXT)
    steady.hold()
    writers = [wires.ask("POST", "s", TEXT, b"0")]
    steady.wait_until_held()
    for number in range(1, 10):
        writers.append(wires.ask("POST", "s", TEXT, b"%d" % number))
        wires.get("HEAD", "s")  # taken in by now, and in this order
    assert all(wire.is_quiet() for wire in writers)
    steady.release()
    assert [wire.answer().next_offset for wire in writers] == [f"{end:016d}" for end in range(1, 11)]
    assert wires.get("GET", "s").body == b"0123456789"


def test_a_stream_whose_removal_is_not_durable_can_still_be_read_whole(
    steady: GatedServer, wires: Wires
) -> None:
    """Its data must not be cleared away before: the removal may yet fail."""
    content = b"x" * 1000
    wires.get("PUT", "s", TEXT, content)
    steady.hold()
    deleter = wires.ask("DELETE", "s")
    steady.wait_until_held()
    assert deleter.is_quiet(1.0)  # long enough for housekeeping to come by several times
    assert wires.get("GET", "s").body == content
    steady.release()
    assert deleter.answer().status == 204
    assert wires.get("GET", "s").status == 404


# A disk that fails


def test_a_failed_sync_is_no_success_and_shows_nothing(server: GatedServer, wires: Wires) -> None:
    wires.get("PUT", "s", TEXT, b"before")
    wires.get("PUT", "idle", TEXT, b"quiet")
    poll = wires.ask("GET", "s?offset=now&live=long-poll")
    sse = wires.ask("GET", "s?offset=now&live=sse")
    sse.head()
    events = sse.events()
    next(events)

    server.fail()
    failed = wires.get("POST", "s", TEXT, b"lost")
    assert (failed.status, failed.error["code"]) == (503, "NOT_STORED")
    assert poll.is_quiet(SILENCE_SECONDS)
    assert sse.is_quiet()
    assert wires.get("GET", "s").body == b"before"
    assert wires.get("HEAD", "s").next_offset == "0000000000000006"
    assert wires.get("GET", "idle").body == b"quiet"
    assert "Input/output error" in server.output  # for the operator; clients need not know our paths
    assert str(server.data) not in failed.reason


def test_after_a_failed_sync_every_write_is_refused_with_the_reason(
    server: GatedServer, wires: Wires
) -> None:
    """What the disk holds is unknown from then on. Nothing may be called done, old requests included."""
    wires.get("PUT", "there", TEXT, b"before")
    wires.get("POST", "there", TEXT | producer(0), b"first")
    server.fail()
    assert wires.get("POST", "there", TEXT | producer(1), b"lost").status == 503
    assert wires.get("PUT", "half", TEXT, b"lost").status == 503
    server.release()  # the disk may be well again: it does not matter

    assert wires.get("POST", "there", TEXT | producer(1), b"lost").status == 503  # not "a duplicate"
    for method, name, headers, body, _ in WRITES:
        refused = wires.get(method, name, headers, body)
        assert refused.status == 503, (method, name, headers)
        assert "restart" in refused.reason
        assert refused.headers["retry-after"]
    assert wires.get("GET", "there").body == b"beforefirst"
    assert wires.get("GET", "half").status == 404
    assert wires.get("GET", "new").status == 404


def test_a_restart_after_a_failed_sync_finds_everything_that_was_acknowledged(
    server: GatedServer, wires: Wires
) -> None:
    wires.get("PUT", "s", TEXT, b"before")
    wires.get("POST", "s", TEXT | producer(0), b"first")
    server.fail()
    assert wires.get("POST", "s", TEXT | producer(1), b"unsure").status == 503
    server.restart()

    # It may have reached the disk or not; its producer finds out by asking again, and nothing is there twice.
    assert wires.get("POST", "s", TEXT | producer(1), b"unsure").status in (200, 204)
    assert wires.get("POST", "s", TEXT | producer(2), b"last").status == 200
    assert wires.get("GET", "s").body == b"beforefirstunsurelast"


def test_a_failed_removal_leaves_the_stream_readable(server: GatedServer, wires: Wires) -> None:
    wires.get("PUT", "s", TEXT, b"x" * 1000)
    server.fail()
    assert wires.get("DELETE", "s").status == 503
    poll = wires.ask("GET", "s?offset=now&live=long-poll")
    assert poll.is_quiet(1.0)  # housekeeping comes by, and must leave the data alone
    assert wires.get("GET", "s").body == b"x" * 1000
