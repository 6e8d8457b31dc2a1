"""Deleting: at once, softly while forks need the data, up the chain; and nothing is left on disk."""

import pytest

from perennial.protocol.rejections import NameTaken, SourceGone, StreamGone, StreamMissing
from perennial.protocol.state import Appended
from tests.builders import append, create, fork
from tests.service.world import Answer, Reader, World


def id_of(answer: Answer) -> int:
    assert answer.state is not None
    return answer.state.id


def test_a_deleted_stream_is_missing(world: World) -> None:
    world.create(body=b"abc")
    world.delete()
    assert not world.exists()
    assert world.do("s", append()).outcome == StreamMissing()
    assert world.do("s", None).outcome == StreamMissing()
    world.restart()
    assert not world.exists()


def test_a_deleted_name_is_free_at_once_and_remembers_nothing(world: World) -> None:
    first = world.create(body=b"old data", content_type="text/plain", ttl_seconds=60)
    world.append(producer=("p", 5, 0), seq="z")
    world.delete()
    second = world.create(body=b"new")
    assert id_of(second) != id_of(first)
    assert second.state is not None
    assert second.state.ttl_seconds is None
    assert world.read() == b"new"
    assert isinstance(world.do("s", append(producer=("p", 0, 0), seq="a")).outcome, Appended)
    world.wait(1000)
    assert world.exists()
    world.collect_garbage()
    world.restart()
    assert world.read() == b"newx"


def test_a_name_may_be_deleted_and_created_again_before_the_disk_is_asked(world: World) -> None:
    world.create(body=b"old")
    answers = [world.send("s", None), world.send("s", create(b"new")), world.send("s", append(b"er"))]
    world.settle()
    assert not any(answer.refused for answer in answers)
    assert world.read() == b"newer"
    world.collect_garbage()
    assert world.read() == b"newer"


def test_readers_of_a_deleted_stream_are_told_and_do_not_see_its_successor(world: World) -> None:
    created = world.create(body=b"old")
    handle = world.handle()
    assert handle is not None
    reader = Reader()
    world.service.watch(handle, reader)
    world.send("s", None)
    world.send("s", create(b"new"))
    world.settle()
    assert reader.woken == 1
    assert handle.visible is not None
    assert handle.visible.id != id_of(created), "by which a reader knows"
    world.service.unwatch(handle, reader)


# Garbage


@pytest.mark.parametrize("records", [1, 5, 400])
def test_garbage_collection_really_removes_blocks_and_producers(world: World, records: int) -> None:
    stream_id = id_of(world.create())
    other = id_of(world.create("other", body=b"kept"))
    for number in range(records):
        world.send("s", append(b"data", producer=(f"p{number % 3}", 0, number // 3)))
    world.settle()
    assert world.stored_blocks(stream_id) == records
    world.delete()
    world.collect_garbage()
    assert world.stored_blocks(stream_id) == 0
    assert world.store.producer(stream_id, "p0") is None
    assert world.stored_blocks(other) == 1


def test_garbage_of_sealed_streams_is_removed_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perennial.service.sealing.BLOCK_RECORDS", 8)
    stream_id = id_of(world.create())
    for _ in range(20):
        world.append(body=b"data")
        world.seal()
    assert world.store.sealed_until(stream_id) > 0
    world.delete()
    world.collect_garbage()
    assert world.stored_blocks(stream_id) == 0
    assert world.store.sealed_until(stream_id) == 0


def test_a_stream_deleted_while_it_is_sealed_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perennial.service.sealing.BLOCK_RECORDS", 8)
    stream_id = id_of(world.create())
    for _ in range(20):
        world.append(body=b"data")
    assert world.sealer.step()  # begins
    with world.held_disk():
        world.send("s", None)
        world.until_on_its_way()
        world.seal()
    world.settle()
    world.seal()
    world.collect_garbage()
    assert world.stored_blocks(stream_id) == 0
    assert world.store.sealed_until(stream_id) == 0


def test_a_deletion_on_its_way_loses_no_data_yet(world: World) -> None:
    """The batch that marks the garbage may still be undone by a crash."""
    created = world.create(body=b"abc")
    with world.held_disk():
        world.send("s", None)
        world.until_on_its_way()
        committer = world.service.committer
        assert committer.is_unsettled(id_of(created))
        world.store.collect_garbage(committer.is_unsettled)
        assert world.stored_blocks(id_of(created)) == 1
    world.settle()
    assert not world.service.committer.is_unsettled(id_of(created))


def test_nothing_is_left_of_a_service_that_has_deleted_everything(world: World) -> None:
    ids = []
    for number in range(10):
        ids.append(id_of(world.create(f"s{number}", body=b"abc", ttl_seconds=60)))
        world.append(f"s{number}", producer=("p", 0, 0))
        ids.append(id_of(world.fork(f"f{number}", f"s{number}", body=b"own")))
    for number in range(10):
        world.delete(f"s{number}")
        world.delete(f"f{number}")
    world.collect_garbage()
    assert (world.bucket.streams, world.bucket.hidden) == (0, 0)
    assert list(world.store.streams("default", "", "")) == []
    assert world.store.due(1 << 60, 10) == []
    assert [world.stored_blocks(stream_id) for stream_id in ids] == [0] * 20


# Forks


def chain(world: World) -> list[int]:
    """Three levels, each with bytes of its own."""
    return [
        id_of(world.create("a", body=b"aaa")),
        id_of(world.fork("b", "a", body=b"bbb")),
        id_of(world.fork("c", "b", body=b"ccc")),
    ]


def test_a_stream_with_forks_is_hidden_and_its_forks_read_on(world: World) -> None:
    chain(world)
    world.delete("a")
    assert not world.exists("a")
    assert world.do("a", append()).outcome == StreamGone()
    assert world.do("a", None).outcome == StreamGone()
    assert world.do("a", create()).outcome == NameTaken()
    assert world.do("new", fork("a")).outcome == SourceGone()
    assert world.read("b") == b"aaabbb"
    assert (world.bucket.streams, world.bucket.hidden) == (2, 1)


@pytest.mark.parametrize("restart", [False, True])
def test_the_last_fork_takes_three_levels_along(world: World, restart: bool) -> None:
    ids = chain(world)
    world.delete("a")
    world.delete("b")
    if restart:
        world.restart()
    assert world.read("c") == b"aaabbbccc"
    assert (world.bucket.streams, world.bucket.hidden) == (1, 2)
    world.delete("c")
    assert (world.bucket.streams, world.bucket.hidden) == (0, 0)
    for name in "abc":
        assert world.do(name, append()).outcome == StreamMissing()
    world.collect_garbage()
    assert [world.stored_blocks(stream_id) for stream_id in ids] == [0, 0, 0]


def test_deleting_the_middle_keeps_what_the_fork_below_needs(world: World) -> None:
    ids = chain(world)
    world.delete("b")
    world.collect_garbage()
    assert world.read("c") == b"aaabbbccc"
    assert world.read("a") == b"aaa"
    world.delete("c")
    world.collect_garbage()
    assert world.exists("a")
    assert [world.stored_blocks(stream_id) for stream_id in ids] == [1, 0, 0]


def test_a_living_source_stays_when_its_forks_are_gone(world: World) -> None:
    chain(world)
    world.delete("c")
    world.delete("b")
    assert world.read("a") == b"aaa"
    world.delete("a")
    assert not world.exists("a")


def test_a_source_waits_for_all_its_forks(world: World) -> None:
    world.create("a", body=b"aaa")
    for number in range(3):
        world.fork(f"f{number}", "a")
    world.delete("a")
    for number in range(3):
        assert world.do("a", append()).outcome == StreamGone()
        world.delete(f"f{number}")
    assert world.do("a", append()).outcome == StreamMissing()
    assert not world.do("a", create()).refused


def test_a_whole_chain_may_go_in_one_commit(world: World) -> None:
    chain(world)
    for name in "abc":
        world.send(name, None)
    world.settle()
    assert (world.bucket.streams, world.bucket.hidden) == (0, 0)


def test_a_fork_that_is_refused_takes_no_reference(world: World) -> None:
    world.create("a", body=b"[1]", content_type="application/json")
    for command in (
        fork("a", content_type="text/plain"),
        fork("a", 99),
        fork("a", 0, 9),
        fork("a", body=b"{"),
    ):
        assert world.do("f", command).refused
    world.delete("a")
    assert world.do("a", append()).outcome == StreamMissing()


def test_a_fork_does_not_inherit_producers_or_sequence(world: World) -> None:
    world.create("a")
    world.append("a", b"1", producer=("p", 3, 0), seq="z")
    world.fork("b", "a")
    assert isinstance(world.do("b", append(b"2", producer=("p", 3, 0), seq="a")).outcome, Appended)
    assert isinstance(world.do("b", append(b"3", producer=("q", 0, 0), seq="b")).outcome, Appended)
    assert world.read("b") == b"123"
    assert world.read("a") == b"1"
