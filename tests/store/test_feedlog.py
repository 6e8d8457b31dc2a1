"""Feed values: what goes in comes out, merged or not, and nothing before a grave survives a merge."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perennial.service.feed_rows import expand
from perennial.store.additions import Additions, Entry, table_row
from perennial.store.feedlog import INLINE_LIMIT, POINTER, FeedBlock, encode_commit, merge

# (position, stream, offset, payload or None for a bare close or "elsewhere", closed)
Row = tuple[int, int, int, Any, bool]

message = st.one_of(st.binary(min_size=1, max_size=9), st.just(b"x" * (INLINE_LIMIT + 3)))
entry = st.tuples(st.integers(1, 4), st.lists(message, max_size=3), st.booleans())
values = st.lists(st.lists(entry, min_size=1, max_size=6), min_size=1, max_size=4)
graves = st.dictionaries(st.integers(1, 4), st.sampled_from([1, 5, 9, 1 << 62]), max_size=2)


def build(commits: list[list[tuple[int, list[bytes], bool]]]) -> tuple[list[FeedBlock], list[Row]]:
    blocks, rows = [], []
    position = 1
    tails: dict[int, int] = {}
    for commit in commits:
        entries: list[Entry] = []
        position_before = position
        for stream, messages, closes in commit:
            offset = tails.get(stream, 0)
            payload = b"".join(messages)
            ends = np.cumsum([len(message) for message in messages], dtype=int).tolist()
            closed = closes or not messages
            row = table_row(stream, f"s{stream}", "text/plain")
            entries.append((row, offset, payload, ends, closed))
            rows += _expected(position, stream, offset, messages, closed)
            position += len(messages) or 1
            tails[stream] = offset + len(payload)
        added = Additions(entries, position_before)
        assert added.next_position == position
        blocks.append(FeedBlock(encode_commit(added, time_us=5)))
    return blocks, rows


def _expected(first: int, stream: int, offset: int, messages: list[bytes], closed: bool) -> list[Row]:
    if not messages:
        return [(first, stream, offset, None, True)]
    inline = sum(map(len, messages)) < INLINE_LIMIT
    rows = []
    for index, message in enumerate(messages):
        shown: Any = message if inline else "elsewhere"
        rows.append((first + index, stream, offset, shown, closed and index == len(messages) - 1))
        offset += len(message)
    return rows


def read(block: FeedBlock) -> list[Row]:
    rows = expand(block)
    kinds = np.repeat(block.kinds, np.maximum(block.counts, 1))
    found: list[Row] = []
    at = 0
    for index, length in enumerate(rows.lengths.tolist()):
        shown: Any = None
        if rows.is_data[index] and kinds[index] & POINTER:
            shown = "elsewhere"
        elif rows.is_data[index]:
            shown = bytes(block.payload[at : at + length])
            at += length
        stream = int(block.table.ids[rows.streams[index]])
        position, offset = int(rows.positions[index]), int(rows.offsets[index])
        found.append((position, stream, offset, shown, bool(rows.closed[index])))
    assert at == len(block.payload)
    return found


@given(values)
def test_a_value_reads_back_row_by_row(commits: list[list[tuple[int, list[bytes], bool]]]) -> None:
    blocks, rows = build(commits)
    assert [row for block in blocks for row in read(block)] == rows


@given(values, graves)
def test_merging_keeps_exactly_the_rows_that_no_grave_covers(
    commits: list[list[tuple[int, list[bytes], bool]]], dead: dict[int, int]
) -> None:
    blocks, rows = build(commits)
    merged = merge(blocks, dead)
    alive = [row for row in rows if row[2] >= dead.get(row[1], 0)]
    assert ([] if merged is None else read(FeedBlock(merged))) == alive


@given(values, graves)
def test_merging_again_changes_nothing(
    commits: list[list[tuple[int, list[bytes], bool]]], dead: dict[int, int]
) -> None:
    blocks, _ = build(commits)
    merged = merge(blocks, dead)
    if merged is not None:
        assert merge([FeedBlock(merged)], dead) == merged
