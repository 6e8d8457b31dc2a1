"""Clocks that leap: idle windows do not notice, absolute times follow when it lasts."""

from pathlib import Path

import pytest

from perennial.service import clock
from perennial.service.clock import SteadyClock

SECOND = 1_000_000_000
YEAR_MS = 365 * 86_400_000
START_MS = 1_800_000_000_000


class Machine:
    """A wall clock that can be set, and a steady one that cannot."""

    def __init__(self) -> None:
        self.steady_ns = 5_000 * SECOND
        self.shift_ns = START_MS * 1_000_000 - self.steady_ns

    def pass_seconds(self, seconds: float) -> None:
        self.steady_ns += int(seconds * SECOND)

    def leap(self, milliseconds: int) -> None:
        self.shift_ns += milliseconds * 1_000_000

    def clock(self, keep_in: Path | None = None) -> SteadyClock:
        return SteadyClock(keep_in, lambda: self.steady_ns + self.shift_ns, lambda: self.steady_ns)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_without_leaps_all_readings_are_the_wall_clock(machine: Machine) -> None:
    clock = machine.clock()
    machine.pass_seconds(100)
    assert clock.idle_ms() == clock.wall_ms() == START_MS + 100_000


def test_a_leap_forward_expires_no_idle_window_early(machine: Machine) -> None:
    clock = machine.clock()
    machine.leap(YEAR_MS)
    machine.pass_seconds(1)
    assert clock.idle_ms() == START_MS + 1000


def test_a_leap_back_does_not_make_an_idle_window_longer(machine: Machine) -> None:
    clock = machine.clock()
    machine.leap(-YEAR_MS)
    machine.pass_seconds(60)
    assert clock.idle_ms() == START_MS + 60_000


def test_absolute_times_follow_a_leap_that_lasts(machine: Machine) -> None:
    clock = machine.clock()
    machine.leap(YEAR_MS)
    assert clock.wall_ms() == START_MS, "not yet: it may be a mistake"
    machine.pass_seconds(59)
    assert clock.wall_ms() == START_MS + 59_000
    machine.pass_seconds(1)
    assert clock.wall_ms() == START_MS + 60_000 + YEAR_MS


def test_a_clock_that_is_wrong_for_a_moment_changes_nothing(machine: Machine) -> None:
    clock = machine.clock()
    machine.leap(YEAR_MS)
    clock.wall_ms()
    machine.pass_seconds(50)
    machine.leap(-YEAR_MS)
    assert clock.wall_ms() == START_MS + 50_000
    machine.pass_seconds(50)
    assert clock.wall_ms() == START_MS + 100_000


def test_small_corrections_are_followed_at_once(machine: Machine) -> None:
    clock = machine.clock()
    for _ in range(10):
        machine.leap(500)
        machine.pass_seconds(1)
        clock.wall_ms()
    assert clock.wall_ms() == START_MS + 15_000
    assert clock.idle_ms() == START_MS + 10_000


def test_a_restart_after_a_leap_reads_stored_windows_as_before(machine: Machine, tmp_path: Path) -> None:
    before = machine.clock(tmp_path / "clock")
    machine.leap(YEAR_MS)
    before.wall_ms()
    machine.pass_seconds(10)
    after = machine.clock(tmp_path / "clock")
    assert after.idle_ms() == before.idle_ms() == START_MS + 10_000
    assert after.wall_ms() == START_MS + 10_000 + YEAR_MS, "a new process believes the clock it finds"


def test_after_a_new_start_of_the_machine_the_wall_clock_is_all_there_is(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = machine.clock(tmp_path / "clock")
    machine.leap(YEAR_MS)
    before.wall_ms()
    monkeypatch.setattr(clock, "_boot_id", lambda: "another")
    assert machine.clock(tmp_path / "clock").idle_ms() == START_MS + YEAR_MS
    assert not (tmp_path / "clock").exists()


def test_the_real_clock_goes_forward() -> None:
    real = SteadyClock()
    readings = [real.idle_ms() for _ in range(1000)]
    assert readings == sorted(readings)
    assert abs(real.idle_ms() - real.wall_ms()) < 1000
