"""`python -m benchmarks.memory`: what a million streams and thousands of idle readers cost in memory.

The store is built once, through the service and without waiting for the disk; then the server is started on
it as it ships. Start-up is the time from the command to the line that says it listens, interpreter included.
Memory is what the kernel counts as resident, shared libraries included.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.targets import PERENNIAL, Server, running
from benchmarks.tools import BUILD
from tests.harness.footprint import (
    IdleReaders,
    allow_open_files,
    build_streams,
    resident_bytes,
    stream_name,
)
from tests.harness.wire import Wire

MIB = 1 << 20
KIB = 1 << 10
STARTS = 3

console = Console(width=None if sys.stdout.isatty() else 120)


@dataclass(frozen=True)
class Result:
    title: str
    value: float
    unit: str
    goal: float | None = None

    @property
    def met(self) -> bool | None:
        return None if self.goal is None else self.value < self.goal


def main(
    streams: Annotated[int, typer.Option(help="Streams in the store.", min=1)] = 1_000_000,
    readers: Annotated[int, typer.Option(help="Idle SSE connections.", min=1)] = 5_000,
    data: Annotated[Path, typer.Option(help="Where the server keeps its files: a disk.")] = BUILD / "data",
    keep: Annotated[
        Path | None, typer.Option(help="Build here once, and measure again without building.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail when a goal is missed.")] = False,
) -> None:
    """Measure start-up and memory with many streams and many readers."""
    allow_open_files(readers + 1000)
    with _built(streams, data, keep) as root:
        results = [*_measure_start(root, streams), *_measure_readers(root, streams, readers)]
    table = Table("What", "Measured", "Goal", "Met", title="Memory and start-up")
    for result in results:
        goal = "" if result.goal is None else f"less than {result.goal:g} {result.unit}"
        met = {True: "yes", False: "NO", None: ""}[result.met]
        table.add_row(result.title, f"{result.value:,.2f} {result.unit}", goal, met)
    console.print(table)
    sys.exit(1 if strict and any(result.met is False for result in results) else 0)


@contextmanager
def _built(streams: int, parent: Path, keep: Path | None) -> Iterator[Path]:
    if keep is not None and keep.exists():
        yield keep
        return
    parent.mkdir(parents=True, exist_ok=True)
    root = keep or Path(tempfile.mkdtemp(prefix="memory-", dir=parent))
    try:
        with Progress(console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task(f"building {streams:,} streams", total=streams)
            build_streams(root / PERENNIAL.key, streams, lambda done: progress.update(task, completed=done))
        yield root
    finally:
        if keep is None:
            shutil.rmtree(root, ignore_errors=True)


def _measure_start(root: Path, streams: int) -> list[Result]:
    """The best of a few starts: others on this machine can only make one slower."""
    seconds, resident = [], []
    for _ in range(STARTS):
        begun = time.perf_counter()
        with running([PERENNIAL], root) as (server,):
            seconds.append(time.perf_counter() - begun)
            resident.append(resident_bytes(server.process.pid))
    return [
        Result(f"start-up, {streams:,} streams", min(seconds), "s", 2),
        Result("resident after the start", max(resident) / MIB, "MiB", 300),
    ]


def _measure_readers(root: Path, streams: int, readers: int) -> list[Result]:
    results = []
    for title, spread in (("of one stream", 1), ("of a stream each", min(streams, readers))):
        with running([PERENNIAL], root) as (server,):
            _warm_up(server, spread)
            before = resident_bytes(server.process.pid)
            with IdleReaders(server.port, readers, spread):
                each = (resident_bytes(server.process.pid) - before) / readers
        results.append(Result(f"each of {readers:,} idle SSE readers, {title}", each / KIB, "KiB", 30))
    results.append(_measure_sweep(root, streams))
    return results


def _warm_up(server: Server, spread: int) -> None:
    """What the first connection brings with it is not the cost of the others."""
    with IdleReaders(server.port, 10, spread):
        pass


def _measure_sweep(root: Path, streams: int) -> Result:
    """Touch far more streams than are kept in memory: idle ones must leave."""
    touched = min(streams, 100_000)
    with running([PERENNIAL], root) as (server,), Wire(server.port) as wire:
        for number in range(0, streams, streams // touched):
            wire.request("HEAD", f"/v1/stream/{stream_name(number)}")
        resident = resident_bytes(server.process.pid)
    return Result(f"resident after looking at {touched:,} streams", resident / MIB, "MiB", 300)


if __name__ == "__main__":
    typer.run(main)
