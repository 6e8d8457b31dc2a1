"""The same requests to a server with lanes and to one without: nobody can tell which is which."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from perennial.http.lanes import LONGEST_PATH, AppendLane
from perennial.store.errors import StoreFull
from tests.http import wire
from tests.http.served import Peer, Served

TEXT = b"Content-Type: text/plain"
JSON = b"Content-Type: application/json"
LONG = b"x" * LONGEST_PATH
NAMES = ("t", "u", "f", "j", "lease", LONG.decode())


class Kind(NamedTuple):
    """Requests that differ in their bodies only. `%04d` stands for four digits."""

    line: bytes
    headers: tuple[bytes, ...] = ()
    body: bytes = b"%04d"
    framing: bytes = b"Content-Length: 4"

    def message(self, number: int) -> bytes:
        lines = (self.line, b"Host: a", *self.headers, self.framing, b"", b"")
        return b"\r\n".join(lines) + self.body.replace(b"%04d", b"%d" % (1000 + number % 9000))


def append(
    name: bytes, *headers: bytes, body: bytes = b"%04d", framing: bytes = b"Content-Length: 4"
) -> Kind:
    return Kind(b"POST /v1/stream/%b HTTP/1.1" % name, headers, body, framing)


def bare(method: bytes, name: bytes, *headers: bytes) -> Kind:
    return Kind(b"%b /v1/stream/%b HTTP/1.1" % (method, name), headers, b"", b"Content-Length: 0")


APPENDS = [
    *[append(b"t", TEXT), append(b"u", TEXT)] * 3,
    append(b"j", JSON),
    append(b"lease", TEXT),
    append(b"nowhere", TEXT),
]
OTHER_APPENDS = [
    append(b"%74", TEXT),
    append(b"t?a=b", TEXT),
    append(b"t", b"Content-Type: Text/Plain; a=b"),
    append(b"t", b"Content-Type: nonsense"),
    append(b"t"),
    append(b"j", JSON, body=b"{bad"),
    append(b"j", JSON, body=b"[  ]"),
    append(b"t", TEXT, b"Origin: https://a.example"),
    append(b"t", TEXT, b"X-Request-ID: mine"),
    append(b"t", TEXT, b"Stream-Seq: b"),
    append(b"t", TEXT, b"Stream-Closed: true"),
    append(b"t", TEXT, b"Producer-Id: p", b"Producer-Epoch: 0", b"Producer-Seq: 0"),
    append(b"t", TEXT, b"Connection: close"),
    append(b"t", TEXT, b"Connection: keep-alive"),
    append(b"t", TEXT, b"Expect: 100-continue"),
    append(b"t", TEXT, body=b"", framing=b"Content-Length: 0"),
    append(b"t", TEXT, body=b"4\r\n%04d\r\n0\r\n\r\n", framing=b"Transfer-Encoding: chunked"),
    append(b"t", TEXT, body=b"%04d" * 5000, framing=b"Content-Length: 20000"),
    append(b"__ds/t", TEXT),
    append(b"a//b", TEXT),
    append(LONG, TEXT),
    Kind(b"POST http://a/v1/stream/t HTTP/1.1", (TEXT,)),
    Kind(b"POST /v1/stream/t HTTP/1.0", (TEXT,)),
    Kind(b"POST /v1/stream/t HTTP/1.0", (TEXT, b"Connection: keep-alive")),
    Kind(b"POST /ds/default/t HTTP/1.1", (TEXT,)),
]
STREAMS = [
    *(bare(b"PUT", name, TEXT) for name in (b"t", b"u", LONG)),
    bare(b"PUT", b"j", JSON),
    bare(b"PUT", b"lease", TEXT, b"Stream-TTL: 60"),
]
FORK = bare(b"PUT", b"f", b"Stream-Forked-From: /v1/stream/t")
OTHERS = [
    bare(b"PUT", b"t", JSON),
    *[FORK, bare(b"DELETE", b"t"), bare(b"DELETE", b"f")] * 3,
    *(bare(method, name) for method in (b"DELETE", b"GET", b"HEAD") for name in (b"t", b"u", b"j")),
    bare(b"POST", b"t", b"Stream-Closed: true"),
]
HAPPENINGS = ["fail", "fail", "wait", "end", "end", "leave", "stall", *["go on"] * 4]
ACTS = 500


class Act(NamedTuple):
    what: str
    who: int = 0
    kinds: tuple[Kind, ...] = ()  # sent at once
    cut: int = 0  # where the first piece ends
    settles: bool = True


def story(chance: random.Random) -> Iterator[Act]:
    """Mostly appends, one at a time; and all that can happen between them."""
    for _ in range(ACTS):
        who, settles = chance.randrange(3), chance.random() < 0.7
        if chance.random() < 0.15:
            if chance.random() < 0.5:  # to somebody who waits for an answer
                yield Act("send", who, (chance.choice(APPENDS),), settles=False)
            yield Act(chance.choice(HAPPENINGS), who, settles=settles)
        else:
            count = 1 if chance.random() < 0.8 else chance.randint(2, 4)
            rooms = chance.choices([APPENDS, OTHER_APPENDS, STREAMS, OTHERS], [6, 2, 2, 1], k=count)
            cut = 0 if chance.random() < 0.8 else chance.randint(1, 150)
            yield Act("send", who, tuple(map(chance.choice, rooms)), cut, settles)


class Server:
    """One of the two, and everyone who ever connected to it."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.all: list[Peer] = []
        self.present: dict[int, Peer] = {}
        served.learn(*(kind.message(0) for kind in [*APPENDS, *OTHER_APPENDS, *STREAMS, *OTHERS]))

    def act(self, number: int, act: Act) -> None:
        served = self.served
        peer = self._peer(act.who)
        if act.what == "send":
            data = b"".join(kind.message(10 * number + place) for place, kind in enumerate(act.kinds))
            served.do(lambda: peer.send(*filter(None, (data[: act.cut], data[act.cut :]))))
        elif act.what == "fail":
            served.world.store.fail_writes = StoreFull("no space left")
            served.settle()
            served.world.store.fail_writes = None
        elif act.what == "wait":
            served.world.wait(40)
        else:
            steps: dict[str, Callable[[], None]] = {
                "end": peer.end,
                "leave": peer.leave,
                "stall": peer.stall,
                "go on": peer.go_on,
            }
            served.do(steps[act.what])
        if act.settles:
            served.settle()

    def seen(self) -> dict[str, Any]:
        self.served.settle()
        world = self.served.world
        ends = [(peer.transport.closing, peer.transport.aborted, peer.transport.eof) for peer in self.all]
        return {
            "answers": [peer.take() for peer in self.all],
            "ends": ends,
            "contents": {name: world.read(name) for name in NAMES if world.exists(name)},
            "states": [world.visible(name) for name in NAMES],
            "tallies": self.served.tallies(),
        }

    def _peer(self, who: int) -> Peer:
        if who not in self.present or not self.present[who].is_open:
            self.present[who] = self.served.peer()
            self.all.append(self.present[who])
        return self.present[who]


@contextmanager
def both(directory: Path) -> Iterator[tuple[Server, Server]]:
    with Served(directory / "with") as one, Served(directory / "without", lanes=False) as other:
        servers = (Server(one), Server(other))
        for server in servers:
            server.act(0, Act("send", kinds=tuple(STREAMS)))
        yield servers


@pytest.mark.parametrize("seed", range(8))
def test_every_answer_and_every_byte_is_the_same(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "HIGH_WATER", 400)  # so that a peer that stalls is soon too far behind
    with both(tmp_path) as servers:
        for number, act in enumerate(story(random.Random(seed)), 1):
            for server in servers:
                server.act(number, act)
            if act.settles:
                assert servers[0].seen() == servers[1].seen(), (number, act)
        for server in servers:
            for newcomer, kind in enumerate(APPENDS, 3):
                server.act(0, Act("send", newcomer, (kind,), settles=False))
            server.served.do(server.served.drain)
        assert servers[0].seen() == servers[1].seen(), "while they stop"


def test_lanes_are_used_by_one_of_the_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the test above would compare nothing."""
    entered = []
    real = AppendLane.enter

    def enter(lane: AppendLane, line: Any, body: bytes) -> None:
        entered.append(body)
        real(lane, line, body)

    monkeypatch.setattr(AppendLane, "enter", enter)
    with both(tmp_path) as servers:
        for number, kind in enumerate(APPENDS):
            for server in servers:
                server.act(number, Act("send", kinds=(kind,)))
        assert servers[0].seen() == servers[1].seen()
    assert entered == [kind.message(10 * number)[-4:] for number, kind in enumerate(APPENDS)]
