"""`python -m benchmarks.live`: ten thousand live SSE connections, and how late events reach them.

10,000 subscribers over 1,000 streams, 100 events/s to one stream after the other, so a thousand deliveries a
second. Twice: with connections that stay, and at the server's own setting, which ends each after about a
minute, so that everybody comes back within the run. Nothing may be missing, come twice or out of order.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import sys
import tempfile
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.crowd import Crowd, Findings, stream_name
from benchmarks.errors import BenchmarkError
from benchmarks.streams import TEXT, Client
from benchmarks.surroundings import Surroundings, watch
from benchmarks.targets import PERENNIAL, Server, running
from benchmarks.tools import BUILD
from tests.harness.footprint import allow_open_files, resident_bytes

GOAL_P99_MS = 250.0
AGES_SECONDS = (3600.0, 60.0)
OTHER_FILES = 2000  # the store's, the writers', and connections that are being replaced
MIB = 1 << 20
KIB = 1 << 10

console = Console(width=None if sys.stdout.isatty() else 120)


@dataclass(frozen=True)
class Load:
    connections: int
    streams: int
    events_per_second: float
    seconds: float
    idle_seconds: float


@dataclass(frozen=True)
class Run:
    """What one load did to a fresh server."""

    load: Load
    found: Findings
    surroundings: Surroundings
    connect_seconds: float
    idle_cores: float
    busy_cores: float
    resident_before: int
    resident_after: int

    @property
    def p99_ms(self) -> float:
        return percentile(self.found.delivered_ms(), 99)

    def rows(self) -> list[tuple[str, str]]:
        found, delivered = self.found, len(self.found.delivered)
        pace = self.load.connections / self.connect_seconds
        grown = self.resident_after - self.resident_before
        resident = f"{self.resident_before / MIB:.0f} MiB before, {self.resident_after / MIB:.0f} after"
        return [
            ("all connected after", f"{self.connect_seconds:.1f} s, {pace:,.0f} per second"),
            ("events sent", f"{len(found.due):,}"),
            ("deliveries", f"{delivered:,} of {delivered + found.missing:,}"),
            ("the disk's syncs beside it, p50 / p99 / max", spread(self.surroundings.syncs_ms)),
            ("append acknowledged, p50 / p99 / max", spread(found.acknowledged_ms())),
            ("delivered, p50 / p99 / max", spread(found.delivered_ms())),
            ("the same, after the acknowledgement", spread(found.delivered_after_acknowledgement_ms())),
            ("connections ended and opened again", f"{found.reconnected:,}"),
            ("server's cores, idle / under load", f"{self.idle_cores:.2f} / {self.busy_cores:.2f}"),
            ("the machine's cores, under load", f"{self.surroundings.busy_share:.0%} busy, load included"),
            ("server's memory", f"{resident}, {grown / self.load.connections / KIB:.1f} KiB per connection"),
        ]


def main(
    connections: Annotated[int, typer.Option(help="SSE connections.", min=1)] = 10_000,
    streams: Annotated[int, typer.Option(help="Streams they are spread over.", min=1)] = 1000,
    rate: Annotated[float, typer.Option(help="Events per second, all streams together.", min=1)] = 100,
    seconds: Annotated[float, typer.Option(help="Length of a run.", min=1)] = 90,
    idle: Annotated[float, typer.Option(help="Seconds before it in which nothing is sent.", min=0)] = 10,
    max_age: Annotated[
        list[float] | None, typer.Option(help="Seconds until a connection is ended; one run each.")
    ] = None,
    data: Annotated[Path, typer.Option(help="Where the server keeps its files: a disk.")] = BUILD / "data",
    strict: Annotated[bool, typer.Option("--strict", help="Fail when the goal for p99 is missed.")] = False,
) -> None:
    """Measure live delivery to a crowd. Fails when an event is missing, comes twice or out of order."""
    allow_open_files(connections + OTHER_FILES)
    load = Load(connections, streams, rate, seconds, idle)
    failed = False
    for age in max_age or AGES_SECONDS:
        try:
            run = measure(load, age, data)
        except BenchmarkError as problem:
            console.print(f"Benchmark stopped. {problem}", style="red", highlight=False, markup=False)
            sys.exit(2)
        print_run(run, age)
        failed |= bool(run.found.faults()) or (strict and run.p99_ms >= GOAL_P99_MS)
    sys.exit(failed)


def measure(load: Load, max_age_seconds: float, data: Path) -> Run:
    settings = {**PERENNIAL.settings, "PERENNIAL_SSE_MAX_AGE": str(max_age_seconds)}
    data.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="live-", dir=data))
    try:
        with running([replace(PERENNIAL, settings=settings)], root) as (server,):
            client = Client(server.port)
            for number in range(load.streams):
                client.create(stream_name(number), TEXT)
            client.close()
            return uvloop.run(_run(server, load, root))
    finally:
        shutil.rmtree(root, ignore_errors=True)


async def _run(server: Server, load: Load, data: Path) -> Run:
    resident_before = resident_bytes(server.process.pid)
    crowd = Crowd(server.port, load.connections, load.streams)
    begun = time.perf_counter()
    await crowd.gather()
    connect_seconds = time.perf_counter() - begun
    gc.collect()
    gc.freeze()  # a pause of ours would look like one of the server's
    idle_cores = await _cores(server, asyncio.sleep(load.idle_seconds))
    with watch(data) as surroundings:
        busy_cores = await _cores(server, crowd.listen(load.events_per_second, load.seconds))
    resident_after = resident_bytes(server.process.pid)
    await crowd.leave()
    return Run(
        load,
        crowd.found,
        surroundings,
        connect_seconds,
        idle_cores,
        busy_cores,
        resident_before,
        resident_after,
    )


async def _cores(server: Server, work: Coroutine[None, None, None]) -> float:
    """How many cores the server keeps busy meanwhile."""
    begun, used = time.perf_counter(), server.cpu_seconds()
    await work
    return (server.cpu_seconds() - used) / max(0.001, time.perf_counter() - begun)


def print_run(run: Run, max_age_seconds: float) -> None:
    load = run.load
    shape = f"{load.connections:,} SSE connections over {load.streams:,} streams"
    pace = f"{load.events_per_second:g} events/s for {load.seconds:g} s"
    table = Table("What", "Measured", title=f"{shape}, {pace}, connections ended after {max_age_seconds:g} s")
    for row in run.rows():
        table.add_row(*row)
    console.print(table)
    goal = f"p99 {run.p99_ms:.0f} ms: the goal of {GOAL_P99_MS:g} ms is"
    console.print(f"{goal} {'met' if run.p99_ms < GOAL_P99_MS else 'MISSED'}", highlight=False)
    console.print(", ".join(run.found.faults()) or "no drop, none twice, all in order", highlight=False)


def spread(samples: Sequence[float]) -> str:
    return " / ".join(f"{percentile(samples, percent):,.1f}" for percent in (50, 99, 100)) + " ms"


def percentile(samples: Sequence[float], percent: int) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else 0.0


if __name__ == "__main__":
    typer.run(main)
