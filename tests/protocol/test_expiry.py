import pytest

from perennial.protocol.expiry import deadline_ms, slack_ms
from tests.builders import NOW_MS, stream


def test_a_stream_without_a_lifetime_never_expires() -> None:
    assert deadline_ms(stream(), NOW_MS) is None


@pytest.mark.parametrize("ttl_seconds", [0, 1, 3600, 2**53 - 1])
def test_a_window_runs_from_the_last_touch(ttl_seconds: int) -> None:
    state = stream(ttl_seconds=ttl_seconds)
    assert deadline_ms(state, NOW_MS) == NOW_MS + ttl_seconds * 1000
    assert deadline_ms(state, NOW_MS + 77) == NOW_MS + 77 + ttl_seconds * 1000


def test_an_absolute_expiry_does_not_move() -> None:
    state = stream(expires_at_ms=NOW_MS + 5)
    assert deadline_ms(state, NOW_MS) == NOW_MS + 5
    assert deadline_ms(state, NOW_MS + 100) == NOW_MS + 5


def test_slack_is_a_tenth_of_the_window_and_at_most_a_minute() -> None:
    assert slack_ms(0) == 0
    assert slack_ms(1) == 100
    assert slack_ms(60) == 6_000
    assert slack_ms(600) == 60_000
    assert slack_ms(2**53 - 1) == 60_000
