"""Actors on stage: each in a thread of its own with a connection of its own, until the curtain falls."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.durability.actors import Actor
from tests.harness.server import ServerProcess
from tests.harness.wire import Wire

PATIENCE_SECONDS = 60.0


@contextmanager
def crashing(
    server: ServerProcess,
    actors: list[Actor],
    crash: Callable[[], None],
    rounds: int,
    acts: Callable[[], int],
) -> "Iterator[Troupe]":
    """After so many crashes under load, each followed by a start and a verification."""
    with Wire(server.port) as wire:
        for actor in actors:
            actor.prepare(wire)
    troupe = Troupe(server, actors)
    try:
        for _ in range(rounds):
            troupe.enter()
            troupe.wait_for_acts(acts())
            crash()
            troupe.leave()
            server.start()
            verify_all(server, actors)
        yield troupe
    finally:
        troupe.go_home()


class Troupe:
    """Actors, each in a thread of its own, on stage between `enter` and `leave`."""

    def __init__(self, server: ServerProcess, actors: list[Actor], pause_seconds: float = 0.0) -> None:
        self._server = server
        self._pause = pause_seconds  # between two acts of one actor
        self.acts: Counter[str] = Counter()  # by kind of actor
        self._actors = actors
        self._changed = threading.Condition()
        self._on_stage = False
        self._busy = 0
        self._acts = 0
        self._failure: BaseException | None = None
        self._over = False
        for actor in actors:
            threading.Thread(target=self._play, args=(actor,), name=actor.name, daemon=True).start()

    def enter(self) -> None:
        with self._changed:
            self._on_stage = True
            self._changed.notify_all()

    def wait_for_acts(self, count: int) -> None:
        """Until so many more things have been done, by all together."""
        with self._changed:
            goal = self._acts + count
            done = self._changed.wait_for(lambda: self._acts >= goal or self._failure, PATIENCE_SECONDS)
        assert done, f"only {self._acts} of {goal} acts came about\n{self._server.output}"
        self.raise_failure()

    def leave(self) -> None:
        """All have come to rest when this returns."""
        with self._changed:
            self._on_stage = False
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._busy == 0, PATIENCE_SECONDS), "someone hangs"
        self.raise_failure()

    def go_home(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _play(self, actor: Actor) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._on_stage or self._over)
                if self._over:
                    return
                self._busy += 1
            try:
                with Wire(self._server.port) as wire:
                    while self._on_stage and not self._over:
                        actor.act(wire)
                        self._count(actor)
                        if self._pause:
                            time.sleep(self._pause)
            except ConnectionError:
                self._wait_for_curtain()
            except BaseException as error:
                self._failure = error
                self._wait_for_curtain()
            finally:
                with self._changed:
                    self._busy -= 1
                    self._changed.notify_all()

    def _count(self, actor: Actor) -> None:
        with self._changed:
            self._acts += 1
            self.acts[type(actor).__name__] += 1
            self._changed.notify_all()

    def _wait_for_curtain(self) -> None:
        with self._changed:
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._on_stage or self._over, PATIENCE_SECONDS)


def verify_all(server: ServerProcess, actors: list[Actor]) -> None:
    with Wire(server.port) as wire:
        for actor in actors:
            actor.verify(wire)
