"""Killing the server under load, again and again. CRASH_ROUNDS and CRASH_SEED ask for more, or for others."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.durability.actors import (
    Actor,
    Batcher,
    Closer,
    Forker,
    Observer,
    Producer,
    Recreator,
    Writer,
)
from tests.durability.bucket_actors import FeedFollower, Snapshotter
from tests.harness.gate import GatedServer
from tests.harness.server import ServerProcess
from tests.harness.troupe import crashing, verify_all
from tests.harness.wire import Wire

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "3"))
SEED = int(os.environ.get("CRASH_SEED", "4437"))
# So that an observer is never found asleep when a round is over.
SETTINGS = {"PERENNIAL_LONG_POLL_TIMEOUT": "0.2"}


def cast(seed: int) -> list[Actor]:
    return [
        Writer("writer-1", seed, "shared"),
        Writer("writer-2", seed, "shared"),
        Producer("producer-1", seed, "shared"),
        Producer("producer-2", seed, "shared"),
        Observer("observer", seed, "shared"),
        Batcher("batcher", seed),
        Closer("closer", seed),
        Recreator("recreator", seed),
        Forker("forker", seed),
        Snapshotter("snapshotter", seed),
        FeedFollower("follower", seed, "shared"),
    ]


def run(server: ServerProcess, actors: list[Actor], crash: Callable[[], None], chance: random.Random) -> None:
    with crashing(server, actors, crash, ROUNDS, lambda: chance.randint(100, 800)) as troupe:
        # And an orderly end is at least as good as a crash.
        troupe.enter()
        troupe.wait_for_acts(50)
        server.stop()
        troupe.leave()
        server.start()
        verify_all(server, actors)


def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with ServerProcess(tmp_path / "data", SETTINGS) as server:
        run(server, cast(SEED), server.kill, chance)
    assert "Traceback" not in server.output, server.output


def test_nothing_acknowledged_is_lost_when_the_power_fails(tmp_path: Path) -> None:
    """As above, and what the disk was not asked to keep is gone too."""
    chance = random.Random(SEED + 1)
    with GatedServer(tmp_path / "data", SETTINGS) as server:
        run(server, cast(SEED + 1), lambda: server.cut_power(chance), chance)
    assert "Traceback" not in server.output, server.output


def test_the_check_itself_notices_a_lost_byte(tmp_path: Path) -> None:
    """A test of durability that cannot fail would prove nothing."""
    writer = Writer("writer", SEED, "shared")
    with GatedServer(tmp_path / "data") as server:
        with Wire(server.port) as wire:
            writer.prepare(wire)
            for _ in range(10):
                writer.act(wire)
        server.kill()
        log = max((server.data / "wal").glob("*.log"), key=lambda path: int(path.stem))
        os.truncate(log, log.stat().st_size - 1)
        (server.data / "wal" / "SYNCED").unlink()  # the server itself would refuse to start
        server.start()
        with Wire(server.port) as wire, pytest.raises(AssertionError, match="acknowledged line is missing"):
            writer.verify(wire)
