"""Expiry under a clock moved by hand: to the millisecond while running, never early after a restart."""

import pytest

from perennial.protocol.append import Append
from perennial.protocol.producers import Repeat
from perennial.protocol.rejections import StreamGone, StreamMissing
from perennial.protocol.state import Appended
from tests.builders import NOW_MS, append, close, create
from tests.service.world import Reader, World

TTL = 100
SLACK = 10  # seconds; a tenth of the window


# The window


def test_a_window_ends_to_the_millisecond(world: World) -> None:
    world.create(ttl_seconds=TTL)
    world.wait(TTL - 0.001)
    assert world.exists()
    world.wait(0.001)
    assert not world.exists()
    assert world.do("s", append()).outcome == StreamMissing()


def test_an_absolute_expiry_is_kept_to_the_millisecond_whatever_happens(world: World) -> None:
    world.create(expires_at_ms=NOW_MS + 5000)
    for _ in range(4):
        world.wait(1)
        world.append()
        world.touch()
    world.wait(0.999)
    assert world.exists()
    world.wait(0.001)
    assert not world.exists()


def test_an_expiry_in_the_past_is_over_at_once(world: World) -> None:
    assert world.create(expires_at_ms=NOW_MS - 1).given
    assert not world.exists()


def test_a_window_of_nothing_is_over_at_once(world: World) -> None:
    assert world.create(ttl_seconds=0).given
    assert not world.exists()
    assert not world.do("s", create(b"again")).refused


@pytest.mark.parametrize(
    "command",
    [
        append(b"data"),
        append(b"data", producer=("p", 0, 0)),
        append(b"data", close=True),
        close(),
        close(producer=("p", 0, 0)),
    ],
)
def test_a_write_restarts_the_window(world: World, command: Append) -> None:
    world.create(ttl_seconds=TTL)
    for _ in range(3):
        world.wait(TTL - 1)
        assert not world.do("s", command).refused
        command = close() if command == append(b"data", close=True) else command
    world.wait(TTL)
    assert not world.exists()


def test_a_repeated_request_restarts_the_window(world: World) -> None:
    world.create(ttl_seconds=TTL)
    world.append(producer=("p", 0, 0))
    world.wait(TTL - 1)
    assert world.do("s", append(producer=("p", 0, 0))).outcome == Repeat(0, 0)
    world.wait(TTL - 1)
    assert world.exists()


def test_a_read_restarts_the_window(world: World) -> None:
    world.create(ttl_seconds=TTL)
    for _ in range(5):
        world.wait(TTL - 1)
        world.touch()
    world.wait(TTL)
    assert not world.exists()


def test_a_look_or_a_refusal_does_not_restart_the_window(world: World) -> None:
    world.create(ttl_seconds=TTL)
    world.append(seq="b")
    world.wait(TTL - 1)
    assert world.exists()
    assert world.do("s", append(seq="a")).refused
    assert not world.do("s", create(ttl_seconds=TTL)).refused  # an idempotent PUT
    world.wait(1)
    assert not world.exists()


def test_reading_a_fork_leaves_the_windows_of_its_source_alone(world: World) -> None:
    world.create("source", body=b"abc", ttl_seconds=TTL)
    world.fork("f", "source", ttl_seconds=10 * TTL)
    world.wait(TTL - 1)
    assert world.read("f") == b"abc"
    world.touch("f")
    world.wait(1)
    assert not world.exists("source")
    assert world.read("f") == b"abc"


# Readers


def test_a_live_reader_keeps_a_stream_alive_and_the_window_restarts_when_it_leaves(world: World) -> None:
    world.create(ttl_seconds=TTL)
    handle = world.handle()
    assert handle is not None
    reader = Reader()
    world.service.watch(handle, reader)
    for _ in range(20):
        world.wait(TTL)
        assert world.exists()
        world.sweep()
    world.service.unwatch(handle, reader)
    world.wait(TTL - 0.001)
    assert world.exists()
    world.wait(0.001)
    assert not world.exists()


def test_a_live_reader_does_not_move_an_absolute_expiry(world: World) -> None:
    world.create(expires_at_ms=NOW_MS + 1000)
    handle = world.handle()
    assert handle is not None
    reader = Reader()
    world.service.watch(handle, reader)
    world.wait(1)
    world.sweep()
    assert not world.exists()
    assert reader.woken == 1
    world.service.unwatch(handle, reader)


# Leases: what is stored, so that not every access is a write


def test_touches_within_the_slack_write_nothing(world: World) -> None:
    world.create(ttl_seconds=TTL)
    world.wait(1)
    world.touch()
    world.settle()
    writes = world.store.writes
    for _ in range(SLACK - 1):
        world.wait(1)
        world.touch()
        world.settle()
    assert world.store.writes == writes
    world.wait(2)
    world.touch()
    world.settle()
    assert world.store.writes == writes + 1


@pytest.mark.parametrize("touched_after", [0, 0.5, 3, 9.999, 10, 11, 50, 99.9])
def test_a_restarted_server_never_ends_a_window_early_and_at_most_the_slack_late(
    world: World, touched_after: float
) -> None:
    world.create(ttl_seconds=TTL)
    world.wait(touched_after)
    world.touch()
    world.settle()
    world.restart()
    world.wait(TTL - 0.001)
    handle = world.service.handles.find(b"default\0s")
    assert handle is not None
    assert handle.deadline_ms is not None
    assert handle.deadline_ms > world.now_ms, "not early"
    world.wait(SLACK + 0.001)
    assert not world.exists(), "not later than the slack"


def test_an_absolute_expiry_is_exact_after_a_restart(world: World) -> None:
    world.create(expires_at_ms=NOW_MS + 5000)
    world.restart()
    world.wait(4.999)
    assert world.exists()
    world.wait(0.001)
    assert not world.exists()


def test_a_stream_with_a_live_reader_survives_a_restart_by_its_window(world: World) -> None:
    world.create(ttl_seconds=TTL)
    handle = world.handle()
    assert handle is not None
    world.service.watch(handle, Reader())
    for _ in range(5):
        world.wait(TTL)
        world.sweep()
    world.restart()
    world.wait(TTL - 0.001)
    assert world.exists()
    world.wait(SLACK + 0.001)
    assert not world.exists()


# The sweeper


def test_the_sweeper_removes_what_nobody_asks_for(world: World) -> None:
    for number in range(200):
        world.create(f"s{number}", body=b"data", ttl_seconds=1 + number % 2)
    world.create("kept")
    world.restart()
    world.wait(1.5)
    world.sweep()
    assert world.bucket.streams == 101
    world.wait(1)
    world.sweep()
    assert world.bucket.streams == 1
    assert world.store.due(world.now_ms, 10) == []
    world.collect_garbage()
    assert [name for name, _ in world.store.streams("default", "", "")] == ["kept"]


def test_the_sweeper_leaves_what_was_touched(world: World) -> None:
    world.create(ttl_seconds=TTL)
    world.wait(TTL - 1)
    world.touch()
    world.wait(2)
    world.sweep()
    assert world.exists()


def test_one_step_of_the_sweeper_is_bounded_and_says_if_there_is_more(world: World) -> None:
    for number in range(100):
        world.send(f"s{number}", create(ttl_seconds=1))
    world.settle()
    world.wait(1)
    assert world.sweeper.step()
    world.settle()
    assert world.bucket.streams == 36
    assert not world.sweeper.step()
    world.settle()
    assert world.bucket.streams == 0
    assert not world.sweeper.step()


def test_readers_of_an_expiring_stream_are_told(world: World) -> None:
    world.create(expires_at_ms=NOW_MS + 1000)
    handle = world.handle()
    assert handle is not None
    reader = Reader()
    world.service.watch(handle, reader)
    world.wait(1)
    world.sweep()
    assert reader.woken == 1
    assert handle.visible is None
    world.service.unwatch(handle, reader)


# What comes after


def test_an_expired_name_is_free_at_once(world: World) -> None:
    world.create(body=b"old", ttl_seconds=1, content_type="text/plain")
    world.append(producer=("p", 5, 0), seq="z")
    world.wait(1)
    assert world.create(body=b"new").tail == 3
    assert world.read() == b"new"
    assert isinstance(world.do("s", append(producer=("p", 0, 0), seq="a")).outcome, Appended)
    world.wait(100)
    assert world.exists()
    assert world.bucket.streams == 1


def test_an_expired_stream_is_not_seen_while_its_successor_is_on_its_way(world: World) -> None:
    world.create(body=b"old", ttl_seconds=1)
    world.wait(1)
    with world.held_disk():
        world.send("s", create(b"new"))
        world.until_on_its_way()
        assert not world.exists()
    world.settle()
    assert world.read() == b"new"


def test_an_expired_stream_with_forks_is_gone_and_its_name_is_taken(world: World) -> None:
    world.create("source", body=b"abc", ttl_seconds=1)
    world.fork("f", "source", ttl_seconds=TTL)
    world.wait(1)
    assert world.do("source", append()).outcome == StreamGone()
    assert world.do("source", create()).refused
    assert (world.bucket.streams, world.bucket.hidden) == (1, 1)
    assert world.read("f") == b"abc"
    world.wait(TTL)
    world.sweep()
    assert (world.bucket.streams, world.bucket.hidden) == (0, 0)
    assert world.create("source").tail == 0


def test_the_expiry_of_a_fork_releases_its_source(world: World) -> None:
    world.create("source", body=b"abc")
    world.fork("f", "source", ttl_seconds=1)
    world.delete("source")
    assert world.bucket.hidden == 1
    world.wait(1)
    world.sweep()
    assert (world.bucket.streams, world.bucket.hidden) == (0, 0)
