"""A disk that refuses: the service says that it is read-only, says it once, and notices when it is over."""

import asyncio
import logging

import pytest

from perennial.service import commits
from perennial.service.commits import NotStored
from perennial.service.housekeeping import Housekeeper
from perennial.store.errors import StoreError, StoreFull
from tests.builders import append
from tests.service.world import World

FULL = StoreFull("no space left")
BROKEN = StoreError("input/output error")


@pytest.fixture(autouse=True)
def _impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "PROBE_SECONDS", 0.01)


def pass_time(world: World, seconds: float = 0.1) -> None:
    world.loop.run_until_complete(asyncio.sleep(seconds))
    world.settle()


def why(world: World) -> str:
    return world.service.committer.read_only or ""


def test_it_says_why(world: World) -> None:
    world.create()
    assert why(world) == ""
    world.store.fail_writes = FULL
    world.do("s", append(b"x"))
    assert "full" in why(world)
    world.store.fail_writes = BROKEN
    world.do("s", append(b"x"))
    assert "the last write failed" in why(world)


def test_it_recovers_without_anyone_writing(world: World) -> None:
    world.create(body=b"abc")
    world.store.fail_writes = FULL
    world.do("s", append(b"x"))
    pass_time(world)
    assert "full" in why(world)
    world.store.fail_writes = None
    pass_time(world)
    assert why(world) == ""
    assert world.read() == b"abc"


def test_once_well_it_writes_nothing_more_by_itself(world: World) -> None:
    world.create()
    world.store.fail_writes = FULL
    world.do("s", append(b"x"))
    world.store.fail_writes = None
    pass_time(world)
    writes = world.store.writes
    pass_time(world)
    assert world.store.writes == writes


def test_a_failed_sync_is_not_tried_again(world: World) -> None:
    world.create()
    world.store.fail_syncs = BROKEN
    world.do("s", append(b"x"))
    world.store.fail_syncs = None
    syncs = world.store.syncs
    pass_time(world)
    assert "until restarted" in why(world)
    assert world.store.syncs == syncs


def test_it_is_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.create()
    with caplog.at_level(logging.WARNING):
        world.store.fail_writes = FULL
        for _ in range(20):
            world.do("s", append(b"x"))
        pass_time(world)
        world.store.fail_writes = None
        pass_time(world)
    assert [record.message for record in caplog.records] == [
        "writing failed: no space left",
        "commits succeed again",
    ]


def test_background_work_waits_until_it_is_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.create(body=b"abc")
    world.delete()
    housekeeper = Housekeeper(world.service)
    world.store.fail_writes = FULL

    async def keep_house() -> None:
        housekeeper.start()
        await asyncio.sleep(0.1)
        assert "full" in why(world), "background work found out first"
        world.store.fail_writes = None
        for _ in range(100):
            await asyncio.sleep(0.05)
            if not why(world) and not list(world.store.rows("garbage")):
                break
        await housekeeper.stop()

    with caplog.at_level(logging.ERROR):
        world.loop.run_until_complete(keep_house())
    assert not list(world.store.rows("garbage")), "and then it is done all the same"
    assert len(caplog.records) == 1


def test_an_upload_that_does_not_fit_is_not_published(world: World) -> None:
    world.create(body=b"abc")
    upload = world.new_upload()
    upload.feed(bytes(1 << 20))
    world.store.fail_writes = FULL
    upload.feed(bytes(3 << 20))
    upload.feed(b"the rest is taken in")
    outcomes: list[object] = []
    publish = world.service.publish
    publish("default", "s", 3, "text/plain", upload, lambda outcome, _: outcomes.append(outcome))
    assert [type(outcome) for outcome in outcomes] == [NotStored]
    world.store.fail_writes = None
    pass_time(world)
    visible = world.visible()
    assert visible is not None
    assert visible.snapshot is None
    world.restart()
    world.collect_garbage()
    assert not list(world.store.rows("blobs")), "the next start has removed what had come in"
