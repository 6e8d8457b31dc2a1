"""Allowances per identity, with a clock that is moved by hand."""

import pytest

from perennial.http import rates
from perennial.http.rates import Rates, address_name


def test_a_burst_of_one_second_and_then_the_rate() -> None:
    limited = Rates(10, 0)
    assert [limited.admit("a", 0.0) for _ in range(10)] == [0] * 10
    assert limited.admit("a", 0.0) == pytest.approx(0.1)
    assert limited.admit("a", 0.1) == 0
    assert limited.admit("a", 0.1) > 0
    assert limited.throttled == 2


def test_a_slow_rate_still_lets_one_through_when_it_is_due() -> None:
    limited = Rates(0.5, 0)
    assert limited.admit("a", 0.0) == 0
    assert limited.admit("a", 1.0) == pytest.approx(1.0)
    assert limited.admit("a", 2.0) == 0


def test_bytes_are_a_debt_that_time_pays() -> None:
    limited = Rates(0, 1000)
    assert limited.admit("a", 0.0) == 0
    limited.charge("a", 4000)
    assert limited.admit("a", 0.0) == pytest.approx(3.0)
    assert limited.admit("a", 2.9) > 0
    assert limited.admit("a", 3.1) == 0


def test_identities_do_not_share() -> None:
    limited = Rates(1, 0)
    assert limited.admit("a", 0.0) == 0
    assert limited.admit("a", 0.0) > 0
    assert limited.admit("b", 0.0) == 0


def test_time_that_goes_back_gives_and_takes_nothing() -> None:
    limited = Rates(1, 0)
    assert limited.admit("a", 10.0) == 0
    assert limited.admit("a", 5.0) == pytest.approx(1.0)
    assert limited.admit("a", 6.1) == 0


def test_the_quiet_are_forgotten_and_debtors_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "REMEMBERED", 3)
    limited = Rates(0, 1000)
    for name in "abc":
        limited.admit(name, 0.0)
    limited.charge("a", 100_000)
    assert limited.admit("d", 10.0) == 0
    assert limited.admit("a", 10.0) > 0, "a newcomer does not wipe out a debt"


@pytest.mark.parametrize(
    ("client", "name"),
    [
        ("192.0.2.1", "address:192.0.2.1"),
        ("::ffff:192.0.2.1", "address:192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "address:2001:db8:1:2::/64"),
        ("", "address:"),
    ],
)
def test_an_address_stands_for_one_subscriber(client: str, name: str) -> None:
    assert address_name(client) == name
