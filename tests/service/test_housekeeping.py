"""The background work as a whole: it does what its parts do, and does not die of a failure."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from perennial.service import commits, housekeeping, sealing
from perennial.service.housekeeping import Housekeeper
from perennial.store.errors import StoreFull
from tests.service.world import PATIENCE_SECONDS, World


@pytest.fixture
def at_work(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world with a housekeeper that hardly pauses."""
    monkeypatch.setattr(housekeeping, "IDLE_SECONDS", 0.001)
    monkeypatch.setattr(commits, "PROBE_SECONDS", 0.001)
    housekeeper = Housekeeper(world.service)

    async def start() -> None:
        housekeeper.start()

    world.loop.run_until_complete(start())
    yield world
    world.store.obey_no_more()
    world.loop.run_until_complete(housekeeper.stop())


def run_until(world: World, condition: Callable[[], bool]) -> None:
    async def wait() -> None:
        ends = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < ends
            await asyncio.sleep(0.001)

    world.loop.run_until_complete(wait())


def write_ten_records(world: World) -> int:
    """The stream's id."""
    created = world.create()
    assert created.state is not None
    stream_id = created.state.id
    for number in range(10):
        world.append(body=b"%d" % number)
    return stream_id


async def keep_the_loop_busy() -> None:
    while True:
        ends = time.thread_time() + 0.005
        while time.thread_time() < ends:
            pass
        await asyncio.sleep(0)


def test_expired_streams_go_and_their_data_with_them(at_work: World) -> None:
    created = at_work.create(body=b"data", ttl_seconds=5)
    assert created.state is not None
    stream_id = created.state.id
    at_work.wait(4)
    at_work.turn()
    assert at_work.bucket.streams == 1
    at_work.wait(1)
    run_until(at_work, lambda: at_work.bucket.streams == 0 and at_work.stored_blocks(stream_id) == 0)


def test_small_records_are_sealed(at_work: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "BLOCK_RECORDS", 10)
    stream_id = write_ten_records(at_work)
    run_until(at_work, lambda: at_work.stored_blocks(stream_id) == 1)
    assert at_work.read() == b"0123456789"


def test_sealing_waits_while_requests_take_the_loops_time(
    at_work: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    step = sealing.Sealer.step

    def watched(sealer: sealing.Sealer, pressed: bool = False) -> bool:
        told.append(pressed)
        return step(sealer, pressed)

    monkeypatch.setattr(sealing.Sealer, "step", watched)
    requests = at_work.loop.create_task(keep_the_loop_busy())
    run_until(at_work, lambda: told[-1:] == [True])
    # From here on by this thread's time alone, whatever else this machine may have to do.
    monkeypatch.setattr(housekeeping, "monotonic", time.thread_time)
    run_until(at_work, lambda: told[-2:] == [True, True])
    monkeypatch.setattr(sealing, "BLOCK_RECORDS", 10)
    stream_id = write_ten_records(at_work)
    told.clear()
    run_until(at_work, lambda: len(told) >= 10)
    assert at_work.stored_blocks(stream_id) == 10
    monkeypatch.setattr(housekeeping, "monotonic", time.monotonic)
    requests.cancel()
    run_until(at_work, lambda: at_work.stored_blocks(stream_id) == 1)


def test_work_goes_on_when_the_disk_has_room_again(at_work: World) -> None:
    created = at_work.create(body=b"data", ttl_seconds=5)
    assert created.state is not None
    stream_id = created.state.id
    at_work.wait(6)
    at_work.store.fail_writes = StoreFull("no space left")
    run_until(at_work, lambda: at_work.store.refused > 2)
    assert at_work.stored_blocks(stream_id) == 1
    at_work.store.fail_writes = None
    run_until(at_work, lambda: at_work.stored_blocks(stream_id) == 0)
    assert at_work.bucket.streams == 0
