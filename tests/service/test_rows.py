"""Rows of busy streams lag behind, and nobody can tell."""

import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perennial.protocol.append import Append
from perennial.service.checking import Checker
from perennial.service.rows import PERIOD_SECONDS, ROWS_PER_STEP
from perennial.store import keys
from perennial.store.errors import StoreFull
from perennial.store.interface import StreamRow
from perennial.store.rocks import FORMAT, RocksStore
from tests.builders import append, close, create, fork
from tests.service.world import World


class Clock:
    """Periods as the housekeeper counts them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._now = 0.0

    def next_period(self) -> None:
        self._now += PERIOD_SECONDS
        committer = self._world.service.committer
        while committer.rows.catch_up(self._now, committer.touch):
            self._world.settle()


@pytest.fixture
def clock(world: World) -> Clock:
    return Clock(world)


def stored(world: World, name: str = "s") -> StreamRow:
    """The row as it lies in the store, and not as the store hands it out."""
    value = world.store._get("streams", keys.stream_key("default", name))
    assert value is not None
    return msgspec.msgpack.decode(value, type=StreamRow)


def is_exact(world: World, name: str = "s") -> bool:
    row = stored(world, name)
    return not row.lags and row.state == world.visible(name)


def make_busy(world: World, name: str = "s") -> None:
    world.create(name)
    for _ in range(3):
        world.append(name, b"abc")
    assert stored(world, name).lags
    assert stored(world, name).state.tail < 9


def test_a_stream_that_grows_after_its_row_was_made_exact_lags_again(world: World) -> None:
    make_busy(world)
    world.fork("f", "s")
    assert is_exact(world)
    world.append("s", b"and more")
    assert stored(world).lags
    world.restart()
    assert world.read("s") == b"abcabcabcand more"


def test_a_busy_stream_grows_without_its_row(world: World) -> None:
    make_busy(world)
    before = stored(world)
    for _ in range(5):
        world.append(body=b"more")
    assert stored(world) == before
    row = world.store.stream(keys.stream_key("default", "s"))
    assert row is not None
    assert row.state == msgspec.structs.replace(before.state, tail=29, last_write_ms=world.now_ms)


def test_a_restart_finds_the_tail_of_a_lagging_row_and_goes_on_from_there(world: World) -> None:
    make_busy(world)
    seen = world.visible()
    world.restart()
    assert world.visible() == seen
    assert world.append(body=b"def").tail == 12
    assert world.read() == b"abcabcabcdef"


def test_a_stream_that_grows_now_and_then_always_has_an_exact_row(world: World, clock: Clock) -> None:
    world.create()
    for _ in range(4):
        world.append(body=b"abc")
        assert is_exact(world)
        clock.next_period()
        clock.next_period()


def test_a_stream_gets_an_exact_row_when_it_has_been_quiet(world: World, clock: Clock) -> None:
    make_busy(world)
    clock.next_period()
    assert stored(world).lags, "it grew in the period before"
    clock.next_period()
    assert is_exact(world)
    writes = world.store.writes
    clock.next_period()
    assert world.store.writes == writes


def test_a_stream_that_stays_busy_keeps_its_lagging_row(world: World, clock: Clock) -> None:
    make_busy(world)
    before = stored(world)
    for _ in range(5):
        clock.next_period()
        world.append(body=b"abc")
    assert stored(world) == before


def test_many_streams_become_quiet_a_few_at_a_time(world: World) -> None:
    names = [f"s{number}" for number in range(ROWS_PER_STEP + 5)]
    for name in names:
        world.send(name, create())
    for _ in range(3):
        for name in names:
            world.send(name, append())
        world.settle()
    committer = world.service.committer
    committer.rows.catch_up(1.0, committer.touch)
    left = []
    for now in (2.0, 2.1, 2.2):
        committer.rows.catch_up(now, committer.touch)
        world.settle()
        left.append(sum(stored(world, name).lags for name in names))
    assert left == [5, 0, 0]


@pytest.mark.parametrize("last", [append(b"z", seq="7"), append(b"z", close=True), close()])
def test_what_only_the_row_tells_is_in_the_row_at_once(world: World, last: Append) -> None:
    make_busy(world)
    answer = world.done(world.do("s", last))
    assert stored(world).state == answer.state
    world.restart()
    assert world.visible() == answer.state


def test_a_fork_of_a_busy_stream_has_all_of_it(world: World) -> None:
    make_busy(world)
    world.fork("f", "s")
    world.append("f", b"own")
    world.restart()
    assert world.read("f") == b"abcabcabcown"
    assert world.read("s") == b"abcabcabc"


def test_a_stream_deleted_while_its_row_lags_leaves_nothing(world: World, clock: Clock) -> None:
    make_busy(world)
    world.delete()
    world.create()
    for _ in range(3):
        clock.next_period()
    assert is_exact(world)
    world.restart()
    assert world.read() == b""


def test_after_a_failed_commit_the_row_is_written_again(world: World) -> None:
    make_busy(world)
    world.store.fail_writes = StoreFull("no space left")
    assert world.do("s", append(b"lost")).refused
    world.store.fail_writes = None
    answer = world.append(body=b"kept")
    assert stored(world).state == answer.state
    world.restart()
    assert world.read() == b"abcabcabckept"


def test_a_handle_with_a_lagging_row_is_the_only_one_of_its_stream(tmp_path: Path) -> None:
    with World(tmp_path / "data", handles=4) as small:
        make_busy(small)
        handle = small.handle()
        for number in range(20):
            small.create(f"other{number}")
        assert small.handle() is handle
        clock = Clock(small)
        for _ in range(3):
            clock.next_period()
        for number in range(20):
            small.create(f"another{number}")
        assert small.service.handles.peek(keys.stream_key("default", "s")) is None
        assert small.append(body=b"def").tail == 12


def test_a_lease_renewed_on_a_busy_stream_survives_a_restart(world: World) -> None:
    world.create(ttl_seconds=100)
    for _ in range(5):
        world.append(body=b"abc")
        world.wait(80)
    world.restart()
    assert world.read() == b"abcabcabcabcabc"
    world.wait(300)
    assert not world.exists()


def test_check_finds_lost_data_behind_a_lagging_row(tmp_path: Path) -> None:
    with World(tmp_path / "data") as world:
        make_busy(world)
        state = world.visible()
        assert state is not None
    store = RocksStore(tmp_path / "data")
    assert Checker(store).run(lambda step: None).problems == []
    batch = store.batch()
    batch.raw.delete(keys.block_key(state.id, 6), store._families["blocks"])
    store.write(batch)
    assert Checker(store).run(lambda step: None).problems != []
    store.close()


def test_a_store_of_the_format_before_is_taken_over(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store._tables["meta"][b"format"] = b"1"
    store.close()
    store = RocksStore(tmp_path)
    assert store._get("meta", b"format") == FORMAT
    store.close()


NAMES = st.sampled_from(["a", "b"])
STEPS = st.one_of(
    st.tuples(st.just("append"), NAMES),
    st.tuples(st.just("append"), NAMES),
    st.tuples(st.just("number"), NAMES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("fork"), NAMES),
    st.tuples(st.sampled_from(["period", "restart", "seal", "fail"]), st.just("")),
)


@given(st.lists(STEPS, max_size=40))
def test_states_are_the_same_before_and_after_every_restart(steps: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as directory, World(Path(directory) / "data") as world:
        clock = Clock(world)
        for number, (step, name) in enumerate(steps):
            match step:
                case "append" | "number":
                    world.do(name, create())
                    world.do(
                        name, append(b"%04d" % number, seq=f"{number:04d}" if step == "number" else None)
                    )
                case "delete":
                    world.do(name, None)
                case "fork":
                    world.do(f"fork {number}", fork(name))
                case "period":
                    clock.next_period()
                case "seal":
                    world.seal()
                case "fail":
                    world.store.fail_writes = StoreFull("no space left")
                    world.do("a", append(b"lost"))
                    world.store.fail_writes = None
                case _:
                    seen = {name: world.visible(name) for name in ("a", "b")}
                    read = {name: world.read(name) for name, state in seen.items() if state is not None}
                    world.restart()
                    clock = Clock(world)
                    assert {name: world.visible(name) for name in ("a", "b")} == seen
                    assert {name: world.read(name) for name in read} == read
