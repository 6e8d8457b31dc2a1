"""Facts about the machine and the programs, without which a number means nothing."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import quantiles

from benchmarks.tools import HOME, REFERENCE_PACKAGE, reference_version

FSYNC_SAMPLES = 100
FSYNC_BYTES = 16 * 1024


def facts(data_root: Path) -> dict[str, str]:
    """What is known about this machine, in the order in which a reader asks."""
    p50, p99 = fsync_latency_ms(data_root)
    disk = _file_system(data_root)
    node = _first_line(["node", "--version"])
    return {
        "Measured": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "CPU": f"{_cpu_model()}, {os.cpu_count()} cores",
        "Memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "Load average before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "Data directory": f"{disk}; 16 KiB and fdatasync: p50 {p50:.2f} ms, p99 {p99:.2f} ms",
        "System": f"{platform.system()} {platform.release()}",
        "Perennial": _perennial(),
        "Python": _python(),
        "Reference": f"{REFERENCE_PACKAGE} {reference_version()} on Node {node}",
        "wrk": _first_line(["wrk", "--version"]).removeprefix("wrk ").partition(" [")[0],
    }


def fsync_latency_ms(directory: Path) -> tuple[float, float]:
    """How long this disk takes to make one group of appends durable: median and 99th percentile."""
    path, block, took = directory / "fsync-probe", os.urandom(FSYNC_BYTES), []
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        for _ in range(FSYNC_SAMPLES):
            begun = time.perf_counter()
            os.write(file, block)
            os.fdatasync(file)
            took.append((time.perf_counter() - begun) * 1e3)
    finally:
        os.close(file)
        path.unlink()
    cuts = quantiles(took, n=100)
    return cuts[49], cuts[98]


def is_memory_backed(directory: Path) -> bool:
    """Whether fsync costs nothing here, so that durability would be measured for free."""
    return _file_system(directory) in {"tmpfs", "ramfs"}


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    """The type of the file system that holds the directory: the longest mount point that is a parent wins."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [(len(point), kind) for point, kind in mounts if directory.resolve().is_relative_to(point)]
    return max(holding)[1] if holding else "unknown"


def _perennial() -> str:
    try:
        version = metadata.version("perennial")
    except metadata.PackageNotFoundError:
        version = "not installed"
    commit = _first_line(["git", "-C", str(HOME), "rev-parse", "--short", "HEAD"])
    changed = _first_line(["git", "-C", str(HOME), "status", "--porcelain", "--", "../src"])
    return f"{version}, commit {commit}{' with local changes' if changed else ''}" if commit else version


def _python() -> str:
    """A build without profile-guided optimisation runs the same code noticeably slower. Distributions have
    their own ways to optimise: of theirs, only the place tells."""
    if sys.base_prefix == "/usr":
        built = "built by the distribution"
    elif "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        built = "built with optimisations"
    else:
        built = "built without optimisations"
    return f"{platform.python_version()}, {built}"


def _first_line(command: Sequence[str]) -> str:
    try:
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return finished.stdout.partition("\n")[0].strip()
