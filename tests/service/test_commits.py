"""Group commit: many records, one write; and what happens when the disk says no."""

import weakref
from typing import Any

import pytest

from perennial.protocol.producers import Repeat
from perennial.protocol.rejections import Gap
from perennial.protocol.state import Appended, ProducerState
from perennial.service.commits import NotStored
from perennial.store.errors import StoreError, StoreFull
from tests.builders import NOW_MS, append, close, create, fork
from tests.harness.garbage import no_garbage_collection
from tests.service.world import Reader, World

FULL = StoreFull("no space left")
BROKEN = StoreError("input/output error")


# Together


def test_what_arrives_in_one_turn_is_written_and_synced_once(world: World) -> None:
    for number in range(10):
        world.create(f"s{number}")
    writes, syncs = world.store.writes, world.store.syncs
    answers = [world.send(f"s{number % 10}", append(b"x")) for number in range(500)]
    world.settle()
    assert all(isinstance(answer.outcome, Appended) for answer in answers)
    assert (world.store.writes, world.store.syncs) == (writes + 1, syncs + 1)
    assert world.read("s3") == b"x" * 50


def test_while_one_commit_is_on_its_way_the_next_one_fills(world: World) -> None:
    world.create()
    writes = world.store.writes
    with world.held_disk():
        first = world.send("s", append(b"first "))
        world.until_on_its_way()
        later = []
        for _ in range(100):
            later.append(world.send("s", append(b"later ")))
            world.turn()
        assert world.store.writes == writes + 1
        assert not first.given
    world.settle()
    assert world.store.writes == writes + 2
    assert world.read() == b"first " + b"later " * 100
    assert [answer.tail for answer in later] == [6 + 6 * number for number in range(1, 101)]


def test_everything_of_one_stream_in_one_commit(world: World) -> None:
    """Created, written, closed, deleted and created again before the disk is asked."""
    answers = [
        world.send("s", create(b"old")),
        world.send("s", append(b" data", close=True)),
        world.send("s", None),
        world.send("s", create(b"new")),
        world.send("s", append(b" data")),
    ]
    world.settle()
    assert not any(answer.refused for answer in answers)
    assert world.read() == b"new data"
    assert world.bucket.streams == 1
    world.restart()
    assert world.read() == b"new data"


def test_an_idle_service_writes_nothing(world: World) -> None:
    world.create()
    writes = world.store.writes
    for _ in range(5):
        world.turn()
        world.settle()
    world.touch()
    assert world.store.writes == writes


def test_commit_times_come_from_the_clock(world: World) -> None:
    answer = world.create(body=b"a")
    assert answer.state is not None
    world.wait(5)
    world.append(body=b"b")
    times = [time for block in world.store.blocks(answer.state.id, 0, 9) for time in block.times]
    assert times == [NOW_MS * 1000, (NOW_MS + 5000) * 1000]


@pytest.mark.parametrize("refusing", ["nothing", "fail_writes", "fail_syncs"])
def test_a_stream_keeps_nothing_of_the_requests_that_were_answered(world: World, refusing: str) -> None:
    """Streams stay in memory for long. Their last requests, with bodies of any size, must not."""
    world.create()
    handle = world.handle()
    setattr(world.store, refusing, BROKEN)
    with no_garbage_collection():
        for _ in range(3):
            answer = world.send("s", append(b"large"))
            world.settle()
            assert answer.given
            gone = weakref.ref(answer)
            del answer
            assert gone() is None
    assert world.handle() is handle, "it is the handle that must let go"


# A write that fails


def test_a_failed_write_is_told_and_changes_nothing(world: World) -> None:
    world.create(body=b"abc")
    handle = world.handle()
    assert handle is not None
    before = handle.accepted
    world.store.fail_writes = FULL
    answer = world.do("s", append(b"def"))
    assert isinstance(answer.outcome, NotStored)
    assert handle.accepted == handle.visible == before
    assert world.read() == b"abc"


def test_after_a_failed_write_the_next_one_is_a_fresh_start(world: World) -> None:
    world.create(body=b"abc")
    world.store.fail_writes = FULL
    world.do("s", append(b"lost"))
    world.store.fail_writes = None
    assert world.append(body=b"def").tail == 6
    assert world.read() == b"abcdef"
    world.restart()
    assert world.read() == b"abcdef"


def test_a_producer_whose_request_failed_sends_it_again(world: World) -> None:
    world.create()
    world.append(body=b"0", producer=("p", 0, 0))
    world.store.fail_writes = FULL
    assert isinstance(world.do("s", append(b"1", producer=("p", 0, 1))).outcome, NotStored)
    world.store.fail_writes = None
    assert world.do("s", append(b"2", producer=("p", 0, 2))).outcome == Gap(1, 2)
    assert isinstance(world.do("s", append(b"1", producer=("p", 0, 1))).outcome, Appended)
    assert world.do("s", append(b"1", producer=("p", 0, 1))).outcome == Repeat(0, 1)
    assert world.read() == b"01"


def test_a_sequence_whose_request_failed_is_free_again(world: World) -> None:
    world.create()
    world.store.fail_writes = FULL
    world.do("s", append(seq="a"))
    world.store.fail_writes = None
    assert isinstance(world.do("s", append(seq="a")).outcome, Appended)


def test_a_close_that_failed_leaves_the_stream_open(world: World) -> None:
    world.create()
    world.store.fail_writes = FULL
    assert isinstance(world.do("s", close()).outcome, NotStored)
    world.store.fail_writes = None
    assert isinstance(world.do("s", append()).outcome, Appended)


def test_a_creation_that_failed_leaves_nothing(world: World) -> None:
    streams = world.bucket.streams
    world.store.fail_writes = FULL
    answers = [world.send("s", create(b"abc")), world.send("s", append(b"def"))]
    world.settle()
    assert all(isinstance(answer.outcome, NotStored) for answer in answers)
    assert not world.exists()
    assert world.bucket.streams == streams
    world.store.fail_writes = None
    assert world.create(body=b"new").tail == 3
    assert world.read() == b"new"
    assert world.bucket.streams == streams + 1


def test_a_deletion_that_failed_leaves_everything(world: World) -> None:
    world.create(body=b"abc")
    world.append(body=b"d", producer=("p", 0, 0))
    world.store.fail_writes = FULL
    assert isinstance(world.do("s", None).outcome, NotStored)
    world.store.fail_writes = None
    world.collect_garbage()
    assert world.read() == b"abcd"
    assert world.bucket.streams == 1
    assert world.do("s", append(producer=("p", 0, 0))).outcome == Repeat(0, 0)
    world.delete()
    assert world.bucket.streams == 0


@pytest.mark.parametrize("lifetime", [{"ttl_seconds": 60}, {"expires_at_ms": NOW_MS + 60_000}])
def test_a_stream_that_could_not_be_deleted_still_expires(world: World, lifetime: dict[str, Any]) -> None:
    world.create(**lifetime)
    world.store.fail_writes = FULL
    world.do("s", None)
    world.store.fail_writes = None
    world.wait(59)
    assert world.exists()
    world.wait(8)
    assert not world.exists()


def test_a_fork_that_failed_takes_no_reference(world: World) -> None:
    world.create(body=b"abc")
    world.store.fail_writes = FULL
    assert isinstance(world.do("f", fork("s")).outcome, NotStored)
    world.store.fail_writes = None
    handle = world.handle()
    assert handle is not None
    assert handle.accepted is not None
    assert handle.accepted.forks == 0
    world.delete()
    assert not world.exists()
    assert (world.bucket.streams, world.bucket.hidden) == (0, 0)


def test_a_deletion_whose_cascade_failed_fails_as_a_whole(world: World) -> None:
    world.create(body=b"abc")
    world.fork("f", "s")
    world.delete("s")
    assert (world.bucket.streams, world.bucket.hidden) == (1, 1)
    world.store.fail_writes = FULL
    assert isinstance(world.do("f", None).outcome, NotStored)
    world.store.fail_writes = None
    assert (world.bucket.streams, world.bucket.hidden) == (1, 1)
    assert world.read("f") == b"abc"
    world.delete("f")
    assert (world.bucket.streams, world.bucket.hidden) == (0, 0)


def test_an_expiry_that_failed_is_tried_again(world: World) -> None:
    world.create(ttl_seconds=1)
    world.create("source", expires_at_ms=NOW_MS + 1000)
    world.fork("f", "source", expires_at_ms=NOW_MS + 10**6)
    world.wait(2)
    world.store.fail_writes = FULL
    world.sweep()
    assert (world.bucket.streams, world.bucket.hidden) == (3, 0)
    assert not world.exists(), "whatever the disk says, its time is over"
    world.settle()
    world.store.fail_writes = None
    world.sweep()
    assert not world.exists()
    assert not world.exists("source")
    assert (world.bucket.streams, world.bucket.hidden) == (1, 1)
    world.delete("f")
    assert (world.bucket.streams, world.bucket.hidden) == (0, 0)


def test_only_the_streams_of_a_failed_commit_are_taken_back(world: World) -> None:
    """What was safe before stays answered and shown, also when the next write fails at that very moment."""
    world.create(body=b"a")
    with world.held_disk():
        safe = world.send("s", append(b"b"))
        world.until_on_its_way()
        lost = world.send("s", append(b"c"))
        world.store.fail_writes = FULL
    world.settle()
    assert isinstance(safe.outcome, Appended)
    assert isinstance(lost.outcome, NotStored)
    assert world.read() == b"ab"
    world.store.fail_writes = None
    assert world.append(body=b"d").tail == 3, "and nothing is overwritten"
    assert world.read() == b"abd"
    world.restart()
    assert world.read() == b"abd"


def test_counts_are_right_when_the_commit_after_a_creation_fails(world: World) -> None:
    with world.held_disk():
        world.send("first", create())
        world.until_on_its_way()
        world.send("second", create())
        world.store.fail_writes = FULL
    world.settle()
    world.store.fail_writes = None
    assert world.bucket.streams == 1
    world.create("third")
    world.delete("first")
    assert world.bucket.streams == 1
    world.restart()
    assert world.bucket.streams == 1


def test_feed_positions_have_no_holes_after_a_failed_write(world: World) -> None:
    world.create(body=b"a")
    head = world.service.feed.head("default")
    world.store.fail_writes = FULL
    world.do("s", append(b"lost"))
    world.store.fail_writes = None
    world.append(body=b"b")
    assert world.service.feed.head("default") == head + 1


# A sync that fails


def test_a_failed_sync_is_told_and_shows_nothing(world: World) -> None:
    world.create(body=b"abc")
    handle = world.handle()
    assert handle is not None
    before = handle.visible
    reader = Reader()
    world.service.watch(handle, reader)
    world.store.fail_syncs = BROKEN
    with world.held_disk():
        answers = [world.send("s", append(b"def"))]
        world.until_on_its_way()
        answers.append(world.send("s", append(b"ghi")))
        answers.append(world.send("t", create()))
    world.settle()
    assert all(isinstance(answer.outcome, NotStored) for answer in answers)
    assert handle.accepted == handle.visible == before
    assert world.read() == b"abc"
    assert not world.exists("t")
    assert reader.woken == 0


def test_after_a_failed_sync_nothing_more_is_accepted(world: World) -> None:
    """What the disk holds is unknown, and a later sync may succeed without it."""
    world.create(body=b"abc")
    world.store.fail_syncs = BROKEN
    world.do("s", append(b"def"))
    world.store.fail_syncs = None
    for command in (append(b"x"), close(), create(b"x"), None):
        assert isinstance(world.do("s", command).outcome, NotStored)
    assert isinstance(world.do("t", create()).outcome, NotStored)
    assert world.read() == b"abc"


def test_after_a_failed_sync_a_repeat_is_not_acknowledged(world: World) -> None:
    world.create()
    world.store.fail_syncs = BROKEN
    command = append(producer=("p", 0, 0))
    world.do("s", command)
    world.store.fail_syncs = None
    assert isinstance(world.do("s", command).outcome, NotStored)


def test_after_a_failed_sync_unsafe_data_stays_hidden_when_memory_is_short(world: World) -> None:
    """The store shows what the disk may not hold; the handle that knows better is not let go."""
    world.create(body=b"abc")
    for number in range(20):
        world.create(f"other{number}")
    world.service.handles._limit = 4
    world.store.fail_syncs = BROKEN
    world.do("s", append(b"def"))
    for _ in range(3):
        for number in range(20):
            world.handle(f"other{number}")
    assert world.read() == b"abc"


# What is remembered of producers


def test_producers_are_remembered_across_restarts(world: World) -> None:
    world.create()
    world.append(producer=("p", 3, 0))
    world.append(producer=("p", 3, 1))
    world.restart()
    assert world.do("s", append(producer=("p", 3, 1))).outcome == Repeat(3, 1)
    assert isinstance(world.do("s", append(producer=("p", 3, 2))).outcome, Appended)


def test_more_producers_than_memory_holds_are_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perennial.service.streams.KNOWN_PRODUCERS", 4)
    world.create()
    for number in range(20):
        world.append(producer=(f"p{number}", 0, 0))
    for number in range(20):
        assert world.do("s", append(producer=(f"p{number}", 0, 0))).outcome == Repeat(0, 0)
    handle = world.handle()
    assert handle is not None
    assert handle.accepted is not None
    assert len(handle.producers) <= 5
    assert world.store.producer(handle.accepted.id, "p7") == ProducerState(0, 0)
