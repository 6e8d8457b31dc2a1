"""Feed sealing: readers see the same rows before, during and after; dead entries leave the disk."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import perennial.service.feed_sealing as feed_sealing
from perennial.protocol.append import Append
from perennial.protocol.create import Create
from perennial.service.feed import END_OF_TIME, StreamFilter
from perennial.service.feed_sealing import FeedSealer
from perennial.service.streams import StreamService
from perennial.store.rocks import RocksStore

BUCKET = "work"
Scenario = Callable[[StreamService, FeedSealer], Awaitable[None]]


def play(directory: Path, scenario: Scenario) -> None:
    async def run() -> None:
        service = StreamService(RocksStore(directory))
        sealer = FeedSealer(service.store, service.buckets, service.feed, service.graves)
        service.feed.on_growth = sealer.grew
        try:
            await done(lambda reply: service.create_bucket(BUCKET, lambda outcome: reply(outcome, None)))
            await scenario(service, sealer)
        finally:
            await service.close()

    asyncio.run(run())


def rows(service: StreamService) -> list[tuple[int, bytes]]:
    """(position, payload) of everything a reader of the feed sees."""
    found = []
    for batch in service.feed.page(BUCKET, 0, END_OF_TIME, StreamFilter(), 1 << 30):
        at = 0
        for index, length in enumerate(batch.lengths.tolist()):
            if batch.keep is None or batch.keep[index]:
                found.append((int(batch.positions[index]), bytes(batch.payload[at : at + length])))
            at += length
    return found


def stored_values(service: StreamService) -> list[bytes]:
    return [value for _, value in service.store.feed(BUCKET, 0)]


async def write_each_alone(service: StreamService, name: str, messages: list[bytes]) -> None:
    """One commit per message, so one feed value each."""
    await done(lambda reply: service.create(BUCKET, name, Create(content_type="text/plain"), reply))
    for message in messages:
        await done(partial(service.append, BUCKET, name, Append(message, "text/plain")))


async def done(start: Callable[[Callable[[Any, Any], None]], None]) -> None:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    start(lambda outcome, _: future.set_result(outcome))
    await future


def seal(sealer: FeedSealer) -> None:
    while sealer.step():
        pass


@pytest.fixture(autouse=True)
def seal_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_sealing, "UNSEALED_VALUES", 8)
    monkeypatch.setattr(feed_sealing, "VALUE_BYTES", 2000)
    monkeypatch.setattr(feed_sealing, "MANY_GRAVES", 1)


def test_small_values_become_few_large_ones_with_the_same_rows(tmp_path: Path) -> None:
    async def scenario(service: StreamService, sealer: FeedSealer) -> None:
        await write_each_alone(service, "a", [b"%04d" % number for number in range(200)])
        before = rows(service)
        seal(sealer)
        assert rows(service) == before
        assert [payload for _, payload in before] == [b"%04d" % number for number in range(200)]
        assert len(stored_values(service)) < 40

    play(tmp_path, scenario)


def test_while_requests_press_a_feed_waits_until_many_values_have_gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_sealing, "PATIENT_VALUES", 30)

    async def scenario(service: StreamService, sealer: FeedSealer) -> None:
        await write_each_alone(service, "a", [b"%04d" % number for number in range(29)])
        assert not sealer.step(pressed=True)
        assert len(stored_values(service)) == 29
        await done(partial(service.append, BUCKET, "a", Append(b"0029", "text/plain")))
        while sealer.step(pressed=True):
            pass
        assert len(stored_values(service)) < 30
        assert [payload for _, payload in rows(service)] == [b"%04d" % number for number in range(30)]

    play(tmp_path, scenario)


def test_rows_stay_the_same_at_every_step_of_a_pass(tmp_path: Path) -> None:
    async def scenario(service: StreamService, sealer: FeedSealer) -> None:
        await write_each_alone(service, "a", [b"%04d" % number for number in range(60)])
        before = rows(service)
        while sealer.step():
            assert rows(service) == before

    play(tmp_path, scenario)


@pytest.mark.parametrize(("between", "left"), [(3, 16), (9, 8)])
def test_a_few_small_values_between_large_ones_are_not_worth_a_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: int, left: int
) -> None:
    monkeypatch.setattr(feed_sealing, "LARGE_VALUE_BYTES", 1000)

    async def scenario(service: StreamService, sealer: FeedSealer) -> None:
        for _ in range(4):
            await write_each_alone(service, "a", [b"small"] * between + [b"large" * 300])
        before = rows(service)
        seal(sealer)
        assert rows(service) == before
        assert len(stored_values(service)) == left

    play(tmp_path, scenario)


def test_dead_entries_between_large_values_leave_the_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_sealing, "LARGE_VALUE_BYTES", 1000)

    async def scenario(service: StreamService, sealer: FeedSealer) -> None:
        for number in range(4):
            await write_each_alone(service, "secret", [b"SECRET%d" % number])
            await write_each_alone(service, "other", [b"large" * 300])
        await done(lambda reply: service.delete(BUCKET, "secret", reply))
        await write_each_alone(service, "other", [b"more"])
        seal(sealer)
        assert [payload for _, payload in rows(service)] == [b"large" * 300] * 4 + [b"more"]
        assert not any(b"SECRET" in value for value in stored_values(service))
        assert service.graves.of(BUCKET) == {}

    play(tmp_path, scenario)


def test_what_a_deleted_stream_said_leaves_the_disk_and_its_grave_is_closed(tmp_path: Path) -> None:
    async def scenario(service: StreamService, sealer: FeedSealer) -> None:
        await write_each_alone(service, "secret", [b"SECRET%d" % number for number in range(20)])
        await write_each_alone(service, "other", [b"kept"] * 5)
        await done(lambda reply: service.delete(BUCKET, "secret", reply))
        assert [payload for _, payload in rows(service)] == [b"kept"] * 5
        await write_each_alone(service, "third", [b"more"])
        seal(sealer)
        assert [payload for _, payload in rows(service)] == [b"kept"] * 5 + [b"more"]
        assert not any(b"SECRET" in value for value in stored_values(service))
        assert service.graves.of(BUCKET) == {}
        assert service.store.graves(BUCKET) == {}

    play(tmp_path, scenario)


def test_a_bucket_deleted_during_a_pass_does_not_come_back(tmp_path: Path) -> None:
    async def scenario(service: StreamService, sealer: FeedSealer) -> None:
        await write_each_alone(service, "a", [b"%04d" % number for number in range(60)])
        sealer.step()
        sealer.step()
        await done(lambda reply: service.delete(BUCKET, "a", reply))
        await done(lambda reply: service.delete_bucket(BUCKET, lambda outcome: reply(outcome, None)))
        await asyncio.sleep(0.002)  # buckets of one name are told apart by the millisecond of their creation
        await done(lambda reply: service.create_bucket(BUCKET, lambda outcome: reply(outcome, None)))
        seal(sealer)
        assert stored_values(service) == []

    play(tmp_path, scenario)
