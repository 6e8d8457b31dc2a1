"""Publishing snapshots and remaking buckets while other commits are on their way."""

from typing import Any

import pytest

from perennial.protocol.names import DEFAULT_BUCKET
from perennial.protocol.rejections import OffsetTrimmed, StreamGone, StreamMissing
from perennial.service import sealing
from perennial.service.feed import END_OF_TIME, StreamFilter
from perennial.service.listing import list_streams
from perennial.service.uploads import Upload
from tests.builders import append, create
from tests.service.world import Answer, World


def positions(world: World, bucket: str) -> list[int]:
    page = world.service.feed.page(bucket, 0, END_OF_TIME, StreamFilter(), 1 << 30)
    return [
        int(position)
        for rows in page
        for position, kept in zip(
            rows.positions, rows.keep if rows.keep is not None else rows.is_data, strict=True
        )
        if kept
    ]


def test_a_snapshot_cannot_go_behind_one_that_is_on_its_way(world: World) -> None:
    """What lies before the first is already marked for removal; a second in the middle of it would hide
    that."""
    world.create()
    world.append(body=b"one")
    world.append(body=b"two")
    with world.held_disk():
        first = world.publish(6)
        world.until_on_its_way()
        second = world.publish(3)
    world.settle()
    assert not first.refused
    assert isinstance(second.outcome, OffsetTrimmed)
    world.collect_garbage()
    state = world.visible()
    assert state is not None
    assert state.earliest == 6


def test_a_stream_that_is_being_deleted_takes_no_snapshot(world: World) -> None:
    world.create()
    world.append(body=b"one")
    world.fork("f", "s")
    with world.held_disk():
        world.send("s", None)
        soft = world.publish(3)
        world.send("f", None)
        gone = world.publish(3, name="f")
    world.settle()
    assert isinstance(soft.outcome, StreamGone)
    assert isinstance(gone.outcome, StreamMissing)


def test_a_stream_made_anew_is_not_judged_by_the_old_one(world: World) -> None:
    world.create()
    world.append(body=b"one")
    with world.held_disk():
        world.send("s", None)
        world.send("s", create())
        early = world.publish(3)
    world.settle()
    assert early.refused
    world.append(body=b"new")
    state = world.visible()
    assert state is not None
    assert (state.snapshot, world.read()) == (None, b"new")


def test_a_snapshot_is_for_the_stream_it_was_begun_for_and_not_for_its_successor(world: World) -> None:
    world.create(body=b"abc")
    upload = world.new_upload()
    upload.feed(b"state of the old one")
    world.delete()
    world.create(body=b"xyz")
    answer = Answer()
    world.service.publish(DEFAULT_BUCKET, "s", 3, "text/plain", upload, answer)
    world.settle()
    assert isinstance(answer.outcome, StreamMissing)
    state = world.visible()
    assert state is not None
    assert (state.snapshot, world.read()) == (None, b"xyz")
    world.collect_garbage()
    assert not list(world.store.rows("blobs"))


def test_numbers_of_uploads_are_never_given_again(world: World) -> None:
    """Their pieces wait to be removed after a crash; a snapshot with the same number would go with them."""
    number = world.service.committer.new_id()
    Upload(world.store, number, stream_id=0)
    world.restart()
    assert world.service.committer.new_id() > number


def test_a_bucket_deleted_and_made_anew_in_one_commit_begins_with_an_empty_feed(world: World) -> None:
    service = world.service

    def settled(outcome: Any) -> None:
        assert outcome is None

    service.create_bucket("agents", settled)
    world.settle()
    with world.held_disk():
        world.send("old", create(b"old"), "agents")
        world.send("old", append(b"more"), "agents")
        world.send("old", None, "agents")
        service.delete_bucket("agents", settled)
        service.create_bucket("agents", settled)
        world.send("new", create(b"new"), "agents")
    world.settle()
    assert len(positions(world, "agents")) == 1
    before = positions(world, "agents")
    world.restart()
    assert positions(world, "agents") == before
    world.send("new", append(b"x"), "agents")
    world.settle()
    assert positions(world, "agents") == [before[0], before[0] + 1]


@pytest.mark.parametrize("ttl", [1, 600])
def test_a_listing_leaves_out_what_has_expired_to_the_millisecond(world: World, ttl: int) -> None:
    """What is stored is a lease somewhat longer than the idle window; whoever holds the stream knows
    better."""
    world.create(ttl_seconds=ttl)
    world.wait(ttl - 0.001)
    assert [found.stream_id for found in listed(world)] == ["s"]
    world.wait(0.001)
    assert listed(world) == []


def listed(world: World) -> list[Any]:
    return list(list_streams(world.service, DEFAULT_BUCKET, "", "", 10).streams)


def test_a_trim_removes_the_last_block_too_when_the_snapshot_covers_it(world: World) -> None:
    world.create()
    for _ in range(5):
        world.append(body=b"x" * 100)
    state = world.visible()
    assert state is not None
    world.publish(400)
    world.settle()
    world.collect_garbage()
    assert world.stored_blocks(state.id) == 1
    world.publish(500)
    world.settle()
    world.collect_garbage()
    assert world.stored_blocks(state.id) == 0
    world.append(body=b"next")
    assert world.read(start=500) == b"next"


def test_sealing_does_not_bring_back_what_was_trimmed_meanwhile(world: World) -> None:
    world.create()
    for _ in range(1100):
        world.send("s", append(b"x" * 10))
    world.settle()
    state = world.visible()
    assert state is not None
    world.sealer.step()  # has taken up the stream
    world.publish(11_000)
    world.settle()
    world.collect_garbage()
    world.seal()
    assert world.stored_blocks(state.id) == 0


def test_a_trim_and_a_fork_in_the_middle_of_sealing_leave_every_byte_in_its_place(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "BLOCK_RECORDS", 8)
    monkeypatch.setattr(sealing, "RECORDS_PER_STEP", 4)
    world.create()
    for number in range(16):
        world.append(body=b"%04d" % number)
    assert world.sealer.step(), "has the first four records"
    world.publish(32)
    world.settle()
    world.collect_garbage()
    world.fork("f", "s")
    world.seal()
    kept = b"".join(b"%04d" % number for number in range(8, 16))
    assert world.read(start=32) == world.read("f", start=32) == kept
    assert world.read(start=40) == kept[8:]
