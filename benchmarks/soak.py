"""A long mixed load with a kill -9 in every round, and a model that knows what must be left.

    python -m benchmarks.soak --seconds 300

Each round sends a new cast of actors on stage: plain and idempotent writers, batches, tails by long-poll and
server-sent events, forks, closures, deletions and re-creations, snapshots, expiry, the feed, the proxy. Then
the server is killed, the store is checked offline, the server starts again, and every actor of this and the
last rounds compares what it finds with what it was promised. Streams of older rounds are deleted. Now and
then a backup is taken under load and checked. At the end the server is stopped in order, and its store
checked once more.
"""

import argparse
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, deque
from pathlib import Path

import msgspec

import perennial
from perennial.service.checking import Checker, Report
from perennial.store.rocks import RocksStore
from tests.durability.actors import Actor, Batcher, Closer, Forker, Observer, Producer, Recreator, Writer
from tests.durability.bucket_actors import BUCKET, FeedFollower, Snapshotter
from tests.harness.server import ServerProcess
from tests.harness.troupe import Troupe, verify_all
from tests.harness.wire import Wire
from tests.soak.actors import Caller, EventReader, Expirer
from tests.upstream import Upstream

SETTINGS = {
    "PERENNIAL_LONG_POLL_TIMEOUT": "0.2",
    "PERENNIAL_SSE_MAX_AGE": "5",
    "PERENNIAL_PROXY_ALLOW": "http://127.0.0.1:*/allowed/**",
    "PERENNIAL_PROXY_ALLOW_PRIVATE": "true",
}
ROUNDS_KEPT = 2
BACKUP_EVERY = 3
PAUSE_SECONDS = 0.004


class Soak:
    def __init__(self, directory: Path, seconds: float, round_seconds: float, seed: int) -> None:
        self._server = ServerProcess(directory / "data", SETTINGS)
        self._directory = directory
        self._seconds = seconds
        self._round_seconds = round_seconds
        self._seed = seed
        self._chance = random.Random(seed)
        self._upstream = Upstream()
        self._casts: deque[tuple[int, list[Actor]]] = deque()
        self.acts: Counter[str] = Counter()
        self.rounds = self.kills = self.checks = self.backups = self.deleted = 0
        self.memory_mib: list[int] = []
        self.restart_seconds: list[float] = []
        self.last_check = Report()

    def run(self) -> None:
        until = time.monotonic() + self._seconds
        with self._server:
            while time.monotonic() < until:
                self._round(min(self._round_seconds, max(1.0, until - time.monotonic())))
            self._server.stop()
            self._check(self._server.data)
            self._server.start()
            for _, actors in self._casts:
                verify_all(self._server, actors)
        assert "Traceback" not in self._server.output, self._server.output[-5000:]

    def _round(self, seconds: float) -> None:
        number = self.rounds
        self.rounds += 1
        actors = self._cast(number)
        with Wire(self._server.port) as wire:
            for actor in actors:
                actor.prepare(wire)
        troupe = Troupe(self._server, actors, PAUSE_SECONDS)
        try:
            troupe.enter()
            ends = time.monotonic() + seconds
            self._pass_time(troupe, seconds * self._chance.uniform(0.2, 0.6))
            if number % BACKUP_EVERY == 1:
                self._back_up()
            self._pass_time(troupe, ends - time.monotonic())
            self.memory_mib.append(resident_mib(self._server.pid))
            self._server.kill()
            self.kills += 1
            troupe.leave()
        finally:
            troupe.go_home()
            self.acts += troupe.acts
        self._casts.append((number, actors))
        self._check(self._server.data)
        began = time.monotonic()
        self._server.start()
        self.restart_seconds.append(time.monotonic() - began)
        for _, cast in self._casts:
            verify_all(self._server, cast)
        while len(self._casts) > ROUNDS_KEPT:
            self._delete(self._casts.popleft()[0])
        did = (
            f"{sum(troupe.acts.values())} acts, killed, {self.last_check.streams} streams whole, all verified"
        )
        print(f"round {self.rounds}: {did}, {self.memory_mib[-1]} MiB", file=sys.stderr, flush=True)

    def _cast(self, number: int) -> list[Actor]:
        r, seed = f"r{number}", self._seed + number
        shared = f"{r}-shared"
        return [
            *(Writer(f"{r}-writer-{n}", seed, shared) for n in range(2)),
            *(Producer(f"{r}-producer-{n}", seed, shared) for n in range(3)),
            *(Observer(f"{r}-observer-{n}", seed, shared) for n in range(2)),
            EventReader(f"{r}-events", seed, shared, self._server),
            FeedFollower(f"{r}-follower", seed, shared),
            Batcher(f"{r}-batcher", seed),
            Closer(f"{r}-closer", seed),
            Recreator(f"{r}-recreator", seed),
            Forker(f"{r}-forker", seed),
            Snapshotter(f"{r}-snapshotter", seed),
            Expirer(f"{r}-expirer", seed),
            Caller(f"{r}-caller", seed, self._upstream),
        ]

    def _pass_time(self, troupe: Troupe, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            troupe.raise_failure()
            time.sleep(0.1)

    def _check(self, data: Path) -> None:
        store = RocksStore(data, read_only=True)
        try:
            self.last_check = Checker(store).run()
        finally:
            store.close()
        self.checks += 1
        assert not self.last_check.problems, self.last_check.problems

    def _back_up(self) -> None:
        from perennial.cli.backups import fetch

        target = self._directory / "backup"
        fetch(self._server.url, None, target)
        self._check(target)
        shutil.rmtree(target)
        self.backups += 1

    def _delete(self, number: int) -> None:
        with Wire(self._server.port) as wire:
            for bucket in ("default", BUCKET):
                for name in _names(wire, bucket, f"r{number}-"):
                    base = "/v1/stream" if bucket == "default" else f"/ds/{bucket}"
                    status = wire.request("DELETE", f"{base}/{name}").status
                    # A source is gone already if its last fork has just taken it along.
                    assert status in (204, 404, 410), (name, status)
                    self.deleted += 1

    def report(self) -> str:
        lines = [
            f"perennial {perennial.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores",
            f"{self.rounds} rounds, {self.kills} times kill -9, {self.checks} offline checks, "
            f"{self.backups} backups under load, {self.deleted} streams deleted",
            ", ".join(f"{count} {kind}" for kind, count in sorted(self.acts.items())),
            f"restarts took {max(self.restart_seconds):.2f} s at most; the server's memory was "
            f"{self.memory_mib[0]} MiB in the first round, {self.memory_mib[-1]} in the last, "
            f"{max(self.memory_mib)} at most",
            f"at the end: {msgspec.json.encode(self.last_check).decode()}",
            "no invariant broken",
        ]
        return "\n".join(lines)


def _names(wire: Wire, bucket: str, prefix: str) -> list[str]:
    names: list[str] = []
    after = ""
    while True:
        answer = wire.request(
            "GET", f"/ds/{bucket}/streams?prefix={prefix}&after={after.replace('/', '%2F')}"
        )
        page = msgspec.json.decode(answer.body)
        names += [row["stream_id"] for row in page["streams"]]
        if not page["has_more"]:
            return names
        after = page["next_cursor"]


def resident_mib(pid: int) -> int:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="how long (default 300)")
    parser.add_argument("--kill-every", type=float, default=60.0, help="seconds in a round (default 60)")
    parser.add_argument("--seed", type=int, default=4437)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perennial-soak-") as directory:
        soak = Soak(Path(directory), options.seconds, options.kill_every, options.seed)
        soak.run()
        print(soak.report())


if __name__ == "__main__":
    main()
