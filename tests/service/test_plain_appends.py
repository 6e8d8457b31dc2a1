"""Appends by the short way: refused without a trace, or stored and told as by the long one."""

import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from perennial.protocol.rejections import (
    ContentTypeConflict,
    Malformed,
    QuotaExceeded,
    StreamClosed,
    StreamGone,
    StreamMissing,
)
from perennial.protocol.state import Appended
from perennial.service import sealing
from perennial.service.commits import NotStored
from perennial.service.handles import StreamHandle
from perennial.service.quotas import Quota, Quotas
from perennial.store.errors import StoreError
from perennial.store.keys import stream_key
from tests.builders import BYTES, JSON, NOW_MS, append, create
from tests.harness.garbage import no_garbage_collection
from tests.service.test_feed import page, read
from tests.service.test_rows import Clock, stored
from tests.service.test_sealing import blocks_of
from tests.service.world import AUDIENCE, Answer, Reader, World

KEY = stream_key("default", "s")
BROKEN = StoreError("input/output error")


def offer(world: World, body: bytes = b"x", content_type: str = BYTES, name: str = "s") -> Answer | None:
    """What the short way says to this; None: it does not take it."""
    answer = Answer()
    taken = world.service.append_plainly(stream_key("default", name), content_type, body, answer, AUDIENCE)
    return answer if taken else None


def plainly(world: World, body: bytes = b"x", name: str = "s") -> Answer:
    answer = offer(world, body, name=name)
    assert answer is not None, "the short way was open"
    return answer


# Refused, and nothing has happened


class Case(NamedTuple):
    prepare: Callable[[World], object]
    long_way: type  # of what it says instead
    content_type: str = BYTES
    body: bytes = b"x"


def delete_at_the_next_commit(world: World) -> None:
    world.create()
    world.send("s", None)


def delete_with_a_fork(world: World) -> None:
    world.create()
    world.fork("f", "s")
    world.delete()


def create_and_load_anew(world: World) -> None:
    world.create()
    world.restart()


def set_quota(world: World) -> None:
    world.create()
    world.service.quotas = Quotas(world.service.buckets, Quota(bytes=1), {})
    world.append()


def fail_a_sync(world: World) -> None:
    world.create()
    world.store.fail_syncs = BROKEN
    world.do("s", append())


CASES = {
    "a stream that never was": Case(lambda world: None, StreamMissing),
    "a stream that is not in memory": Case(create_and_load_anew, Appended),
    "a stream that is gone": Case(delete_at_the_next_commit, StreamMissing),
    "a stream kept for its forks": Case(delete_with_a_fork, StreamGone),
    "a quota": Case(set_quota, QuotaExceeded),
    "an idle window": Case(lambda world: world.create(ttl_seconds=60), Appended),
    "a deadline": Case(lambda world: world.create(expires_at_ms=NOW_MS + 1000), Appended),
    "a disk that failed": Case(fail_a_sync, NotStored),
    "a closed stream": Case(lambda world: world.create(closed=True), StreamClosed),
    "another content type": Case(World.create, ContentTypeConflict, "text/plain"),
    "the same content type in other words": Case(World.create, Appended, "Application/Octet-Stream; a=b"),
    "no body": Case(World.create, Malformed, body=b""),
}


def everything(world: World) -> list[Any]:
    """What an append could have changed."""
    commit = world.service.committer.open
    handles: list[StreamHandle] = []
    world.service.handles.each(handles.append)
    remembered = [{slot: getattr(each, slot) for slot in StreamHandle.__slots__} for each in handles]
    opened = (commit.changed, list(commit.handles), dict(commit.entries), list(commit.replies))
    return [remembered, opened, world.store.writes, world.bucket]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_needs_a_second_look_is_left_to_the_long_way_untouched(world: World, case: Case) -> None:
    case.prepare(world)
    world.service.handles.each(lambda handle: setattr(handle, "used", False))
    before = everything(world)
    assert offer(world, case.body, case.content_type) is None
    assert everything(world) == before
    answer = world.do("s", append(case.body, content_type=case.content_type))
    assert isinstance(answer.outcome, case.long_way)


# Stored, and told


def test_it_is_answered_when_it_is_durable_and_not_before(world: World) -> None:
    world.create(body=b"abc")
    with world.held_disk():
        answer = plainly(world, b"def")
        world.until_on_its_way()
        assert not answer.given
        assert world.read() == b"abc"
    world.settle()
    assert (answer.given, answer.tail) == (True, 6)
    assert answer.state == world.visible()
    assert world.read() == b"abcdef"


def test_readers_are_told_once_of_all_that_became_durable_together(world: World) -> None:
    world.create()
    handle = world.handle()
    assert handle is not None
    reader, woken_at = Reader(), []
    world.service.watch(handle, reader)
    stop = world.service.feed.watch("default", lambda: woken_at.append(world.service.feed.head("default")))
    with world.held_disk():
        for _ in range(3):
            plainly(world)
        world.until_on_its_way()
        assert reader.woken == 0
    world.settle()
    assert reader.woken == 1
    assert woken_at == [3]
    stop()


def test_places_and_offsets_run_through_all_kinds_of_appends_of_a_commit(world: World) -> None:
    world.create()
    world.create("j", content_type=JSON)
    answers = [
        plainly(world, b"one "),
        world.send("s", append(b"two ", producer=("p", 0, 0))),
        world.send("j", append(b"[1,22]", content_type=JSON)),
        plainly(world, b"three "),
        world.send("s", append(b"four ", seq="a")),
        plainly(world, b"five "),
        world.send("s", append(b"six", close=True)),
    ]
    assert offer(world, b"too late") is None
    world.settle()
    assert [answer.tail for answer in answers] == [4, 8, 3, 14, 19, 24, 27]
    assert world.read() == b"one two three four five six"
    assert [payload for _, payload in read(page(world))] == [
        *(b"one ", b"two ", b"1", b"22", b"three ", b"four ", b"five ", b"six"),
    ]
    state = world.visible()
    assert state is not None
    assert (state.closed, state.seq) == (True, "a"), "which plain appends leave alone"


def test_records_are_counted_for_sealing_like_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "BLOCK_RECORDS", 10)
    world.create()
    for number in range(10):
        assert not world.sealer.step(), "not yet"
        plainly(world, b"%d" % number)
        world.settle()
    world.seal()
    assert blocks_of(world) == [10]
    assert world.read() == b"0123456789"


def test_a_stream_that_grows_is_not_the_one_that_leaves_memory(tmp_path: Path) -> None:
    with World(tmp_path / "data", handles=4) as small:
        small.create()
        clock = Clock(small)
        for number in range(20):
            plainly(small)
            small.settle()
            small.create(f"other{number}")
            clock.next_period()
            clock.next_period()
            assert not stored(small).lags, "which would keep it in any case"
            assert small.service.handles.peek(KEY) is not None


def test_nothing_is_kept_of_what_was_answered(world: World) -> None:
    world.create()
    with no_garbage_collection():
        for _ in range(3):
            answer = plainly(world)
            world.settle()
            assert answer.given
            gone = weakref.ref(answer)
            del answer
            assert gone() is None


# The disk


@pytest.mark.parametrize("failing", ["fail_writes", "fail_syncs"])
def test_a_commit_that_fails_takes_all_of_it_back(world: World, failing: str) -> None:
    world.create(body=b"abc")
    handle = world.handle()
    assert handle is not None
    before = handle.accepted
    setattr(world.store, failing, BROKEN)
    answers = [plainly(world, b"lost"), world.send("s", append(b"too", producer=("p", 0, 0))), plainly(world)]
    world.settle()
    assert all(isinstance(answer.outcome, NotStored) for answer in answers)
    assert handle.accepted == handle.visible == before
    assert world.read() == b"abc"
    if failing == "fail_writes":
        world.store.fail_writes = None
        answer = plainly(world, b"kept")
        world.settle()
        assert answer.tail == 7
        world.restart()
        assert world.read() == b"abckept"


def test_what_was_accepted_on_top_of_a_commit_that_fails_fails_with_it(world: World) -> None:
    world.create(body=b"abc")
    with world.held_disk():
        below = plainly(world, b"lost")
        world.until_on_its_way()
        above = plainly(world, b"lost too")
        world.store.fail_syncs = BROKEN
    world.settle()
    assert [type(answer.outcome) for answer in (below, above)] == [NotStored, NotStored]
    assert world.read() == b"abc"


def test_a_row_that_lags_loses_no_byte(world: World, tmp_path: Path) -> None:
    world.create()
    for _ in range(4):
        plainly(world, b"abc")
        world.settle()
    assert stored(world).lags
    seen = world.visible()
    shutil.copytree(world.directory, tmp_path / "after a crash")
    world.restart()
    with World(tmp_path / "after a crash") as crashed:
        for again in (world, crashed):
            assert again.visible() == seen
            assert again.read() == b"abc" * 4
            answer = plainly(again, b"def")
            again.settle()
            assert answer.tail == 15


def test_a_stream_is_not_older_than_its_last_write(world: World) -> None:
    """A plain append takes the time of its commit, which may have been opened before the stream was."""
    world.create("other")
    with world.held_disk():
        world.send("other", append(b"x"))
        world.until_on_its_way()
        world.send("other", append(b"y"))
        world.wait(30)
        world.send("late", create(content_type=BYTES))
        plainly(world, b"z", "late")
    world.settle()
    state = world.visible("late")
    assert state is not None
    assert state.tail == 1
    assert state.last_write_ms >= state.created_ms
