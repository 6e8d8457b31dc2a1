"""What the machine was like during a run: how long its disk took to sync, and how busy everybody kept it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SYNC_EVERY_SECONDS = 0.1


@dataclass
class Surroundings:
    syncs_ms: list[float] = field(default_factory=list)
    busy_share: float = 0.0  # of all processors, by whomever


@contextmanager
def watch(directory: Path) -> Iterator[Surroundings]:
    """Filled in on the way out."""
    found, over = Surroundings(), threading.Event()
    thread = threading.Thread(target=_sync, args=(directory / "surroundings", found.syncs_ms, over))
    busy, idle = _processor_ticks()
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        busy_now, idle_now = _processor_ticks()
        found.busy_share = (busy_now - busy) / max(1, busy_now - busy + idle_now - idle)


def _sync(path: Path, syncs_ms: list[float], over: threading.Event) -> None:
    with path.open("ab", buffering=0) as file:
        while not over.wait(SYNC_EVERY_SECONDS):
            begun = time.perf_counter()
            file.write(bytes(300))
            os.fdatasync(file.fileno())
            syncs_ms.append((time.perf_counter() - begun) * 1000)


def _processor_ticks() -> tuple[int, int]:
    """Busy and idle since the start of the machine."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, idle
