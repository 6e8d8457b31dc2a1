"""Plain counts of what happens: cheap enough to be kept always, read by whoever exports them."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
RECORDS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500)
BYTES: Final = (256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20, 4 << 20, 16 << 20, 64 << 20)


class Histogram:
    """How often a value fell into each range; `bounds` are the ranges' upper ends, the last has none."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class CommitMeasures:
    """What the committer has done since the start."""

    def __init__(self) -> None:
        self.records = Histogram(RECORDS)  # appends and closes in a commit
        self.bytes = Histogram(BYTES)  # payload in a commit
        self.seconds = Histogram(SECONDS)  # from the write of a commit to the end of its sync
        # From the first record of a commit to the moment readers see it: how far visible tails lag behind.
        self.lag = Histogram(SECONDS)
        self.failures = 0

    def committed(self, records: int, size: int, opened_at: float, started_at: float, now: float) -> None:
        self.records.observe(records)
        self.bytes.observe(size)
        self.seconds.observe(now - started_at)
        self.lag.observe(now - opened_at)

    def failed(self) -> None:
        self.failures += 1
