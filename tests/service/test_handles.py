"""Memory is bounded, and nobody can tell."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from perennial.protocol.producers import Repeat
from perennial.protocol.rejections import StreamMissing
from perennial.service.handles import Handles, StreamHandle
from perennial.store.keys import stream_key
from tests.builders import append
from tests.service.world import Reader, World

LIMIT = 4


@pytest.fixture
def small(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path / "data", handles=LIMIT) as world:
        yield world


def test_idle_streams_leave_memory_and_come_back_as_they_were(small: World) -> None:
    for number in range(30):
        small.create(f"s{number}", ttl_seconds=100 + number)
        small.append(f"s{number}", b"%d" % number, producer=("p", 1, 0), seq="a")
    assert len(small.service.handles) <= LIMIT + 8
    for number in range(30):
        state = small.visible(f"s{number}")
        assert state is not None
        assert (state.ttl_seconds, state.seq) == (100 + number, "a")
        assert small.read(f"s{number}") == b"%d" % number
        assert small.do(f"s{number}", append(producer=("p", 1, 0))).outcome == Repeat(1, 0)
    assert len(small.service.handles) <= LIMIT + 8


def test_streams_go_on_after_an_absence(small: World) -> None:
    for turn in range(3):
        for number in range(20):
            if turn == 0:
                small.create(f"s{number}")
            small.append(f"s{number}", b"%d" % turn, producer=("p", 0, turn))
    assert [small.read(f"s{number}") for number in range(20)] == [b"012"] * 20


def test_a_stream_with_unsafe_data_stays(small: World) -> None:
    small.create("kept")
    with small.held_disk():
        answer = small.send("kept", append(b"abc"))
        small.until_on_its_way()
        for number in range(20):
            small.handle(f"missing{number}")
            small.service.handles.find_or_make(stream_key("default", f"new{number}"))
        kept = small.service.handles.peek(stream_key("default", "kept"))
        assert kept is not None
        assert kept.pending
    small.settle()
    assert answer.tail == 3
    assert small.read("kept") == b"abc"


def test_a_stream_with_a_reader_stays(small: World) -> None:
    small.create("kept")
    handle = small.handle("kept")
    assert handle is not None
    reader = Reader()
    small.service.watch(handle, reader)
    for number in range(20):
        small.create(f"s{number}")
    assert small.service.handles.peek(handle.key) is handle
    small.append("kept")
    assert reader.woken == 1
    small.service.unwatch(handle, reader)
    for number in range(20):
        small.append(f"s{number}")
    assert small.service.handles.peek(handle.key) is None


def test_what_was_used_lately_outlives_what_was_not(small: World) -> None:
    small.create("favourite")
    favourite = small.handle("favourite")
    for number in range(50):
        small.create(f"s{number}")
        small.handle("favourite")
    assert small.service.handles.peek(stream_key("default", "favourite")) is favourite


def test_asking_for_what_is_not_there_costs_no_memory(world: World) -> None:
    for number in range(100):
        assert world.do(f"missing{number}", append()).outcome == StreamMissing()
        assert world.handle(f"missing{number}") is None
    assert len(world.service.handles) == 0


def test_a_deleted_stream_leaves_memory(world: World) -> None:
    world.create()
    assert len(world.service.handles) == 1
    world.delete()
    assert len(world.service.handles) == 0


def test_a_handle_is_one_per_name(world: World) -> None:
    world.create()
    handles: Handles = world.service.handles
    key = stream_key("default", "s")
    assert handles.find(key) is handles.find(key) is handles.find_or_make(key) is handles.peek(key)
    visited: list[StreamHandle] = []
    handles.each(visited.append)
    assert visited == [handles.find(key)]
