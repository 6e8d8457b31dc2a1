from datetime import UTC, datetime

import pytest

from perennial.protocol.cursors import EPOCH_MS, next_cursor, parse_cursor


def test_the_epoch_is_the_specifications() -> None:
    assert datetime(2024, 10, 9, tzinfo=UTC).timestamp() * 1000 == EPOCH_MS


@pytest.mark.parametrize(
    ("after_ms", "interval"), [(0, 0), (19_999, 0), (20_000, 1), (39_999, 1), (86_400_000, 4320)]
)
def test_a_cursor_counts_intervals_of_twenty_seconds(after_ms: int, interval: int) -> None:
    assert next_cursor(EPOCH_MS + after_ms, None, 1) == interval


def test_an_older_cursor_is_brought_up_to_date() -> None:
    assert next_cursor(EPOCH_MS + 2_000_000, 99, 3600) == 100
    assert next_cursor(EPOCH_MS + 2_000_000, 0, 3600) == 100


@pytest.mark.parametrize(
    ("jitter_seconds", "steps"), [(1, 1), (20, 1), (21, 2), (40, 2), (3599, 180), (3600, 180)]
)
@pytest.mark.parametrize("client", [100, 101, 10**15 - 1])
def test_a_current_or_future_cursor_is_overtaken_by_the_jitter(
    client: int, jitter_seconds: int, steps: int
) -> None:
    assert next_cursor(EPOCH_MS + 2_000_000, client, jitter_seconds) == client + steps


@pytest.mark.parametrize(("text", "cursor"), [("0", 0), ("42", 42), ("007", 7), ("9" * 15, 10**15 - 1)])
def test_a_cursor_is_digits(text: str, cursor: int) -> None:
    assert parse_cursor(text) == cursor


@pytest.mark.parametrize(
    "text", [None, "", "abc", "-1", "+1", "1.5", " 1", "1\n", "9" * 16, "1" * 9000, "\u0663"]
)
def test_any_other_cursor_is_ignored(text: str | None) -> None:
    assert parse_cursor(text) is None
