"""Killing the server while large snapshots come in. CRASH_ROUNDS and CRASH_SEED as in `test_crash`."""

import os
import random
from collections.abc import Callable
from pathlib import Path

from tests.durability.actors import Actor
from tests.durability.snapshot_actor import Folder
from tests.harness.gate import GatedServer
from tests.harness.server import ServerProcess
from tests.harness.troupe import crashing

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "2"))
SEED = int(os.environ.get("CRASH_SEED", "4437"))


def run(server: ServerProcess, seed: int, crash: Callable[[], None], chance: random.Random) -> None:
    actors: list[Actor] = [Folder(f"folder-{number}", seed) for number in range(4)]
    with crashing(server, actors, crash, ROUNDS, lambda: chance.randint(40, 120)):
        pass
    assert "Traceback" not in server.output, server.output


def test_a_snapshot_is_whole_or_not_there_and_nothing_is_trimmed_without_one(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        run(server, SEED, server.kill, random.Random(SEED))


def test_nor_when_the_power_fails(tmp_path: Path) -> None:
    chance = random.Random(SEED + 1)
    with GatedServer(tmp_path / "data") as server:
        run(server, SEED + 1, lambda: server.cut_power(chance), chance)
