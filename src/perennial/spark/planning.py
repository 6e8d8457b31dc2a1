"""From positions to partitions: plain functions of numbers, the same answer for ever.

A range is written as in the feed: positions p with `after` < p <= `until`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

# Enough for a bucket whose message sizes change over time; each costs one small page.
MOST_SAMPLES: Final = 16
# Below this many rows a look at their sizes costs more than it saves.
ROWS_WORTH_A_SAMPLE: Final = 20_000
MOST_PARTITIONS: Final = 10_000


@dataclass(frozen=True)
class Range:
    after: int
    until: int

    @property
    def rows(self) -> int:
        return max(0, self.until - self.after)


@dataclass(frozen=True)
class Sample:
    """How large rows are at `after`: the bytes per row of the page that begins there."""

    after: int
    row_bytes: float


def sample_points(wanted: Range) -> list[int]:
    """Where to look at the sizes of rows, evenly over the range."""
    if wanted.rows < ROWS_WORTH_A_SAMPLE:
        return [wanted.after] if wanted.rows else []
    count = min(MOST_SAMPLES, wanted.rows // (ROWS_WORTH_A_SAMPLE // 4))
    return [wanted.after + wanted.rows * step // count for step in range(count)]


def split_by_bytes(
    wanted: Range, samples: Sequence[Sample], target_bytes: int, least_parts: int = 1
) -> list[Range]:
    """Ranges of about `target_bytes` each, and at least `least_parts` of them while there are rows for it."""
    if not wanted.rows:
        return []
    segments = _segments(wanted, samples)
    total = sum(segment.rows * row_bytes for segment, row_bytes in segments)
    parts = max(least_parts, min(MOST_PARTITIONS, round(total / target_bytes)), 1)
    parts = min(parts, wanted.rows)
    cuts = [_position_at(segments, total * part / parts) for part in range(1, parts)]
    bounds = [wanted.after, *cuts, wanted.until]
    return [Range(after, until) for after, until in pairwise(bounds) if until > after]


def fixed_split(wanted: Range, parts: int, least_rows: int = 1_000) -> list[Range]:
    """Equal ranges by rows. Depends on its arguments alone, so that a replayed batch is cut the same way."""
    count = max(1, min(parts, wanted.rows // least_rows))
    bounds = [wanted.after + wanted.rows * step // count for step in range(count + 1)]
    return [Range(after, until) for after, until in pairwise(bounds) if until > after]


def end_by_rows(after: int, head: int, max_rows: int) -> int:
    return min(head, after + max_rows)


def end_by_bytes(after: int, head: int, samples: Sequence[Sample], max_bytes: int) -> int:
    """Where about `max_bytes` are full; always at least one row further, or nothing would ever be read."""
    if head <= after:
        return after
    segments = _segments(Range(after, head), samples)
    return min(head, max(after + 1, _position_at(segments, max_bytes)))


def _segments(wanted: Range, samples: Sequence[Sample]) -> list[tuple[Range, float]]:
    """Each sample speaks for the rows from where it was taken to the next one."""
    known = [sample for sample in samples if sample.row_bytes > 0] or [Sample(wanted.after, 1.0)]
    starts = [wanted.after, *(max(wanted.after, sample.after) for sample in known[1:]), wanted.until]
    return [
        (Range(after, until), sample.row_bytes)
        for sample, after, until in zip(known, starts, starts[1:], strict=False)
    ]


def _position_at(segments: Sequence[tuple[Range, float]], size: float) -> int:
    """The position up to which the rows have about `size` bytes together."""
    for segment, row_bytes in segments:
        bytes_here = segment.rows * row_bytes
        if size <= bytes_here:
            return segment.after + int(size / row_bytes)
        size -= bytes_here
    return segments[-1][0].until
