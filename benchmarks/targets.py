"""The servers under test: how each is started, when it is ready, and how it gets the machine to itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.tools import HOME

READY = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")
READY_TIMEOUT_SECONDS = 30.0
STOP_TIMEOUT_SECONDS = 20.0
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Target:
    """A server that can be started: `{data}` in its command stands for a directory of its own."""

    key: str
    label: str
    short: str
    command: Sequence[str]
    settings: Mapping[str, str] = field(default_factory=dict)
    keeps_streams: bool = True  # else it only swallows what is appended


PERENNIAL = Target(
    key="perennial",
    label="Perennial",
    short="Perennial",
    command=[
        *(sys.executable, "-m", "perennial", "serve"),
        *("--host", "127.0.0.1", "--port", "0", "--data", "{data}"),
    ],
    # Subscriptions stay open through a run: the reference never ends them, so neither side reconnects.
    settings={"PERENNIAL_SSE_MAX_AGE": "3600", "PYTHONUNBUFFERED": "1"},
)
REFERENCE_MEMORY = Target(
    "reference-memory", "reference, memory", "memory", ["node", str(HOME / "reference.mjs")]
)
REFERENCE_FILE = Target(
    "reference-file", "reference, file", "file", ["node", str(HOME / "reference.mjs"), "{data}"]
)
BARE = Target(
    "bare",
    "bare parts, no rules",
    "the bare parts",
    [sys.executable, "-m", "benchmarks.bare", "{data}"],
    {"PYTHONPATH": str(HOME.parent)},
    keeps_streams=False,
)

TARGETS = {target.key: target for target in (PERENNIAL, REFERENCE_MEMORY, REFERENCE_FILE, BARE)}


@dataclass(frozen=True)
class Server:
    """A started target. It leads a process group of its own: helpers that it starts count as part of it."""

    target: Target
    process: subprocess.Popen[bytes]
    port: int

    @property
    def key(self) -> str:
        return self.target.key

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cpu_seconds(self) -> float:
        """Processor time used so far by every process of the server."""
        return sum(_group_ticks(self.process.pid)) / CLOCK_TICKS

    def signal(self, number: signal.Signals) -> None:
        if self.process.poll() is not None:
            raise BenchmarkError(
                f"{self.target.label} ended during the run, with status {self.process.returncode}."
            )
        os.killpg(self.process.pid, number)


@contextmanager
def running(targets: Sequence[Target], data_root: Path) -> Iterator[list[Server]]:
    """Start every target on a data directory of its own; stop them all on the way out."""
    with ExitStack() as stack:
        yield [stack.enter_context(_started(target, data_root / target.key)) for target in targets]


@contextmanager
def alone(server: Server, servers: Sequence[Server]) -> Iterator[None]:
    """Freeze the other servers, so that none pays for another's background work."""
    others = [other for other in servers if other is not server]
    try:
        for other in others:
            other.signal(signal.SIGSTOP)
        yield
    finally:
        for other in others:
            other.signal(signal.SIGCONT)


@contextmanager
def _started(target: Target, data: Path) -> Iterator[Server]:
    data.mkdir(parents=True, exist_ok=True)
    log_path = data.with_name(data.name + ".log")
    command = [part.replace("{data}", str(data)) for part in target.command]
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=_environment(target), start_new_session=True
        )
    try:
        yield Server(target, process, _wait_for_port(target, process, log_path))
    finally:
        _stop(process)


def _environment(target: Target) -> dict[str, str]:
    # The caller's own PERENNIAL_* settings would make two people's numbers incomparable.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PERENNIAL_")}
    return inherited | dict(target.settings)


def _wait_for_port(target: Target, process: subprocess.Popen[bytes], log_path: Path) -> int:
    said = ""
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        said = log_path.read_text(errors="replace")
        if ready := READY.search(said):
            return int(ready[1])
        if process.poll() is not None:
            raise BenchmarkError(f"{target.label} could not start, it said:\n{said[-2000:]}")
        time.sleep(0.05)
    raise BenchmarkError(f"{target.label} was not ready after {READY_TIMEOUT_SECONDS:.0f} s:\n{said[-2000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _group_ticks(group: int) -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # that process has just ended
            continue
        if int(fields[2]) == group:
            yield int(fields[11]) + int(fields[12])
