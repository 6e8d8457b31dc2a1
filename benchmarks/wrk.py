"""One run of the wrk load generator."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.errors import BenchmarkError
from benchmarks.targets import Server
from benchmarks.tools import HOME, run

# One thread drives more than any server here answers, and on two cores leaves one for the server.
THREADS = 1 if (os.cpu_count() or 1) <= 4 else 2


@dataclass(frozen=True)
class Load:
    """What to run: a Lua script beside this file, its arguments, and over how many connections."""

    script: str
    arguments: Sequence[str]
    connections: int


@dataclass(frozen=True)
class Summary:
    """What came of it. `refused` are answers of 400 and above; `broken` got no whole answer at all."""

    requests: int
    seconds: float
    refused: int
    broken: int
    p50_ms: float
    p99_ms: float

    @property
    def succeeded(self) -> int:
        return self.requests - self.refused

    def faults(self) -> list[str]:
        counts = {"requests refused": self.refused, "connections or answers broken": self.broken}
        return [f"{count} {what}" for what, count in counts.items() if count]


def drive(server: Server, load: Load, seconds: float) -> Summary:
    """Put the load on the server for that long (wrk counts in whole seconds)."""
    options = [
        f"--threads={THREADS}",
        f"--connections={load.connections}",
        f"--duration={max(1, round(seconds))}s",
        "--timeout=10s",
        f"--script={load.script}",
    ]
    command = ["wrk", *options, server.url, "--", *load.arguments]
    # Run beside the scripts, so that they find summary.lua.
    printed = run(command, cwd=HOME)
    for line in printed.splitlines():
        if line.startswith("SUMMARY "):
            return Summary(**json.loads(line.removeprefix("SUMMARY ")))
    raise BenchmarkError(f"wrk printed no summary:\n{printed}")
