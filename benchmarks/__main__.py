"""`python -m benchmarks`: measure Perennial and the reference server, and say whether the goals are met."""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import appends, machine, reads, report, sse
from benchmarks.errors import BenchmarkError
from benchmarks.outcome import Outcome
from benchmarks.rounds import Plan
from benchmarks.targets import TARGETS
from benchmarks.tools import BUILD, ensure_reference, ensure_sse_client, ensure_wrk

# Subscribers, connections and the servers' own files together.
OPEN_FILES = 16_384
DATA = BUILD / "data"

# A pipe or a log has no width of its own; the table wants a little more than 80 columns.
console = Console(width=None if sys.stdout.isatty() else 120)


class Scenario(StrEnum):
    all = "all"
    appends = "appends"
    reads = "reads"
    sse = "sse"


MEASURE: dict[Scenario, Callable[[Plan], list[Outcome]]] = {
    Scenario.appends: appends.measure,
    Scenario.reads: reads.measure,
    Scenario.sse: sse.measure,
}


def main(
    scenario: Annotated[Scenario, typer.Argument(help="What to measure.")] = Scenario.all,
    seconds: Annotated[float, typer.Option(help="Length of one measurement.", min=1)] = 5,
    warmup: Annotated[float, typer.Option(help="Seconds of load before each measurement.", min=1)] = 2,
    rounds: Annotated[int, typer.Option(help="Measurements per server; the median counts.", min=1)] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="One short round, to see that all runs.")] = False,
    server: Annotated[list[str] | None, typer.Option(help=f"Only these: {', '.join(TARGETS)}.")] = None,
    data: Annotated[Path, typer.Option(help="Where the servers keep their files: a disk.")] = DATA,
    strict: Annotated[bool, typer.Option("--strict", help="Fail when a goal is missed.")] = False,
) -> None:
    """Measure Perennial and the Node reference server in one run, on this machine."""
    complete = scenario is Scenario.all and not quick and not server
    if quick:
        seconds, warmup, rounds = 2, 1, 1
    outcomes: list[Outcome] = []
    facts: dict[str, str] = {}
    problem: BenchmarkError | None = None
    try:
        _raise_open_file_limit()
        with _working_directory(data) as root, console.status("Getting ready") as status:
            _prepare_tools()
            targets = [TARGETS[key] for key in _known(server or list(TARGETS))]
            facts = _facts(root, rounds, seconds, warmup)
            plan = Plan(rounds, seconds, warmup, targets, root, status.update)
            for each in MEASURE if scenario is Scenario.all else [scenario]:
                outcomes += MEASURE[each](plan)
    except BenchmarkError as found:
        problem = found
    # What was measured before a problem is still worth seeing.
    if outcomes:
        report.print_report(console, outcomes, facts)
        directory = report.RESULTS if complete and problem is None else BUILD / "results"
        report.write_files(outcomes, facts, directory)
        console.print(f"Written to {directory}: latest.json, latest.md, latest.png", highlight=False)
    if problem is not None:
        console.print(f"Benchmark stopped. {problem}", style="red", highlight=False, markup=False)
        sys.exit(2)
    sys.exit(_status(outcomes, strict))


def _prepare_tools() -> None:
    ensure_reference()
    ensure_wrk()
    ensure_sse_client()


def _known(keys: list[str]) -> list[str]:
    for key in keys:
        if key not in TARGETS:
            raise BenchmarkError(f"There is no server called {key!r}: choose from {', '.join(TARGETS)}.")
    return keys


def _facts(root: Path, rounds: int, seconds: float, warmup: float) -> dict[str, str]:
    if machine.is_memory_backed(root):
        raise BenchmarkError(
            f"{root} is in memory, where fsync is free: name a directory on a disk with --data."
        )
    plan = f"{rounds}, of {seconds:g} s each after {warmup:g} s of warm-up"
    return machine.facts(root) | {"Rounds": plan}


@contextmanager
def _working_directory(parent: Path) -> Iterator[Path]:
    parent.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _raise_open_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _status(outcomes: list[Outcome], strict: bool) -> int:
    """1 when our own server failed requests or lost data, or, if strict, missed a goal."""
    failed = any(outcome.our_faults() for outcome in outcomes)
    missed = any(verdict.met is False for outcome in outcomes for verdict in outcome.verdicts())
    return 1 if failed or (strict and missed) else 0


if __name__ == "__main__":
    typer.run(main)
