"""Streams under a clock that leaps, from creation to sweeping."""

import asyncio
from pathlib import Path

from perennial.protocol.create import Create
from perennial.service.streams import StreamService
from perennial.service.sweeping import Sweeper
from perennial.store.rocks import RocksStore
from tests.faults.test_clock import START_MS, YEAR_MS, Machine


async def _create(
    service: StreamService, name: str, ttl_seconds: int | None = None, expires_at_ms: int | None = None
) -> None:
    command = Create(content_type="text/plain", ttl_seconds=ttl_seconds, expires_at_ms=expires_at_ms)
    service.create("default", name, command, lambda outcome, state: None)
    await service.committer.settle()


def _service(directory: Path, machine: Machine) -> StreamService:
    def wall_us() -> int:
        return (machine.steady_ns + machine.shift_ns) // 1000

    return StreamService(RocksStore(directory), wall_us, machine.clock(directory / "clock"))


def _run(directory: Path, machine: Machine, leap_ms: int) -> None:
    async def play() -> None:
        service = _service(directory, machine)
        sweeper = Sweeper(service)
        await _create(service, "idle", ttl_seconds=3600)
        await _create(service, "absolute", expires_at_ms=START_MS + 7_200_000)
        machine.leap(leap_ms)
        sweeper.step()
        assert service.find("default", "idle") is not None, "an hour has not passed"
        assert service.find("default", "absolute") is not None, "a leap is not believed at once"
        await _create(service, "later", ttl_seconds=3600)
        await service.close()
        # A new process finds the same windows.
        service = _service(directory, machine)
        assert service.find("default", "idle") is not None
        assert (service.find("default", "absolute") is None) == (leap_ms > 0)
        machine.pass_seconds(3600 + 400)
        for name in ("idle", "later"):
            assert service.find("default", name) is None, "and no longer than an hour and its slack"
        await service.committer.settle()
        await service.close()

    asyncio.run(play())


def test_a_leap_forward_expires_nothing_early(tmp_path: Path) -> None:
    _run(tmp_path / "data", Machine(), YEAR_MS)


def test_a_leap_back_keeps_nothing_for_ever(tmp_path: Path) -> None:
    _run(tmp_path / "data", Machine(), -YEAR_MS)
