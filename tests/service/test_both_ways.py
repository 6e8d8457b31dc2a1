"""The same story in two worlds, one of which takes appends by the short way where it is open."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from perennial.protocol.append import Append
from perennial.protocol.media import is_json
from perennial.protocol.rejections import Rejected
from perennial.store.errors import StoreFull
from perennial.store.keys import stream_key
from tests.builders import BYTES, JSON, append, close, create, fork
from tests.properties.profiles import examples
from tests.service.test_feed import kept, page
from tests.service.test_rows import Clock
from tests.service.world import AUDIENCE, Answer, World

NAMES = ("a", "b", "j")
FULL = StoreFull("no space left")


class Teller:
    """Acts one world's part, and notes every answer."""

    def __init__(self, world: World, short: bool) -> None:
        self.world = world
        self.short = short
        self.taken = 0
        self.answers: list[Answer] = []
        self.clock = Clock(world)

    def tell(self, number: int, step: str, name: str) -> None:
        body = b"%d " % number
        content_type = JSON if name == "j" else BYTES
        match step:
            case "plain":
                self._append(name, Append(body, content_type))
            case "foreign":
                self._append(name, Append(body, "text/plain"))
            case "create":
                self._send(name, create(content_type=content_type))
            case "lease":
                self._send(name, create(content_type=content_type, ttl_seconds=60))
            case "fork":
                self._send(name, fork("a" if name != "a" else "b"))
            case "producer":
                self._send(name, append(body, content_type=content_type, producer=("p", number, 0)))
            case "number":
                self._send(name, append(body, content_type=content_type, seq=f"{number:03d}"))
            case "close":
                self._send(name, close())
            case "delete":
                self._send(name, None)
            case "fail":
                self.world.store.fail_writes = FULL
                self.world.settle()
                self.world.store.fail_writes = None
            case "settle":
                self.world.settle()
            case "seal":
                self.world.settle()
                self.world.seal()
            case "period":
                self.world.settle()
                self.clock.next_period()
                self.world.wait(20)
            case "restart":
                self.world.restart()
                self.clock = Clock(self.world)

    def _send(self, name: str, command: Any) -> None:
        self.answers.append(self.world.send(name, command))

    def _append(self, name: str, command: Append) -> None:
        """As a lane does it."""
        content_type = command.content_type
        assert content_type is not None
        if self.short and not is_json(content_type):
            answer, key = Answer(), stream_key("default", name)
            if self.world.service.append_plainly(key, content_type, command.body, answer, AUDIENCE):
                self.taken += 1
                self.answers.append(answer)
                return
        self._send(name, command)

    def told(self) -> list[Any]:
        """All answers so far, but for the record that only one way makes; and all there is to see."""
        self.world.settle()
        said = [
            (answer.given, answer.outcome if isinstance(answer.outcome, Rejected) else None, answer.state)
            for answer in self.answers
        ]
        states = [self.world.visible(name) for name in NAMES]
        contents = [self.world.read(name) for name in NAMES if self.world.exists(name)]
        return [said, states, contents, self.world.bucket, list(feed(self.world))]


def feed(world: World) -> Iterator[list[Any]]:
    for rows in page(world):
        names = list(rows.table.each_name())
        yield [
            [names[place] for place in rows.streams.tolist()],
            [rows.table.ids[place] for place in rows.streams.tolist()],
            *(column.tolist() for column in (rows.offsets, rows.next_offsets, rows.times, rows.closed)),
            kept(rows),
        ]


OFTEN = ["plain", "plain", "plain", "settle", "create"]
SELDOM = ["foreign", "lease", "fork", "producer", "number", "close", "delete"]
OUTSIDE = ["fail", "seal", "period", "restart"]
STEPS = st.tuples(st.sampled_from(4 * OFTEN + 2 * SELDOM + OUTSIDE), st.sampled_from(NAMES))


@contextmanager
def both(directory: str) -> Iterator[tuple[Teller, Teller]]:
    with World(Path(directory) / "short") as one, World(Path(directory) / "long") as other:
        yield Teller(one, short=True), Teller(other, short=False)


@settings(max_examples=examples(0.5))  # each opens two stores
@given(st.lists(STEPS, min_size=15, max_size=60))
def test_nobody_can_tell_which_way_an_append_took(steps: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as directory, both(directory) as tellers:
        for number, (step, name) in enumerate([("create", "a"), ("create", "j"), *steps]):
            for teller in tellers:
                teller.tell(number, step, name)
            if step in ("settle", "fail", "restart"):
                assert tellers[0].told() == tellers[1].told()
        assert tellers[0].told() == tellers[1].told()


def test_the_short_way_is_taken_where_it_is_open(tmp_path: Path) -> None:
    """Or the test above would compare nothing."""
    with both(str(tmp_path)) as (short, long):
        for number, step in enumerate(["create", "plain", "producer", "plain", "settle", "plain"]):
            for teller in (short, long):
                teller.tell(number, step, "a")
        assert (short.taken, long.taken) == (3, 0)
        assert short.told() == long.told()
