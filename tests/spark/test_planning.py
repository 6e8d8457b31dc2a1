from hypothesis import given
from hypothesis import strategies as st

from perennial.spark.planning import (
    Range,
    Sample,
    end_by_bytes,
    end_by_rows,
    fixed_split,
    sample_points,
    split_by_bytes,
)

positions = st.integers(0, 10_000_000)


def covers(ranges: list[Range], wanted: Range) -> bool:
    """Every position once, in order."""
    edges = [wanted.after] + [part.until for part in ranges]
    return [part.after for part in ranges] == edges[:-1] and edges[-1] == wanted.until


@given(
    positions,
    positions,
    st.lists(st.floats(1, 1e6), max_size=16),
    st.integers(1, 1 << 26),
    st.integers(1, 64),
)
def test_splits_cover_every_position_once(
    after: int, rows: int, sizes: list[float], target: int, least: int
) -> None:
    wanted = Range(after, after + rows)
    points = sample_points(wanted)
    samples = [Sample(point, size) for point, size in zip(points, sizes, strict=False)]
    ranges = split_by_bytes(wanted, samples, target, least)
    assert (covers(ranges, wanted) and all(part.rows > 0 for part in ranges)) if rows else ranges == []


def test_large_rows_get_shorter_ranges() -> None:
    wanted = Range(0, 200_000)
    samples = [Sample(0, 100.0), Sample(100_000, 900.0)]
    ranges = split_by_bytes(wanted, samples, target_bytes=10_000_000)
    assert len(ranges) == 10
    assert ranges[0].rows == 100_000
    assert all(11_000 < part.rows < 11_200 for part in ranges[1:])


def test_one_range_is_cut_for_all_cores() -> None:
    assert len(split_by_bytes(Range(0, 50_000), [Sample(0, 256.0)], 1 << 30, least_parts=4)) == 4


@given(positions, positions, st.integers(1, 64))
def test_fixed_splits_cover_every_position_once(after: int, rows: int, parts: int) -> None:
    wanted = Range(after, after + rows)
    assert covers(fixed_split(wanted, parts), wanted) or rows == 0


def test_a_limit_in_rows_or_bytes_always_lets_something_through() -> None:
    assert end_by_rows(10, 100, 5) == 15
    assert end_by_rows(10, 12, 5) == 12
    assert end_by_bytes(10, 100, [Sample(10, 1000.0)], 1) == 11
    assert end_by_bytes(10, 100, [Sample(10, 1000.0)], 5000) == 15
    assert end_by_bytes(10, 10, [], 5000) == 10
