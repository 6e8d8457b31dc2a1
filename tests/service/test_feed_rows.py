"""Stored values cut into steps: whatever the step, the rows are those of the whole."""

from hypothesis import given
from hypothesis import strategies as st

from perennial.service.feed_rows import slices
from perennial.store.feedlog import entry_sizes, join
from tests.store.test_feedlog import build, read, values

BEYOND = 1 << 40


@given(values, st.integers(0, 60), st.integers(0, 60), st.integers(1, 50_000))
def test_slices_hold_the_wanted_rows_once_and_in_order(
    commits: list[list[tuple[int, list[bytes], bool]]], after: int, length: int, size: int
) -> None:
    blocks, rows = build(commits)
    until = after + length
    found = [row for part in slices(join(blocks), after, until, size) for row in read(part)]
    assert [row for row in found if after < row[0] <= until] == [
        row for row in rows if after < row[0] <= until
    ]


@given(values, st.integers(1, 50_000))
def test_a_slice_is_about_as_large_as_asked_for(
    commits: list[list[tuple[int, list[bytes], bool]]], size: int
) -> None:
    blocks, _ = build(commits)
    for part in slices(join(blocks), 0, BEYOND, size):
        sizes = entry_sizes(part)
        assert sizes.sum() < size + sizes.max(), "it would have been full before its last entry"
