"""Sealing is invisible: whatever was sealed when, every read gives the same."""

from collections.abc import Iterator
from itertools import accumulate

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from perennial.protocol.rejections import Malformed
from perennial.service import reading, sealing
from perennial.service.handles import Handles
from perennial.service.reading import Chunk, messages_between
from perennial.store.errors import StoreCorrupt, StoreFull
from tests.builders import BYTES, JSON, append, create
from tests.service.world import World


def blocks_of(world: World, name: str = "s") -> list[int]:
    """Sizes of the stored blocks, in order."""
    state = world.visible(name)
    assert state is not None
    return [block.end - block.start for block in world.store.blocks(state.id, 0, 1 << 40)]


def test_many_small_records_become_one_block(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "BLOCK_RECORDS", 10)
    world.create()
    for number in range(10):
        assert len(blocks_of(world)) == number
        assert not world.sealer.step(), "not yet"
        world.append(body=b"%d" % number)
    world.seal()
    assert blocks_of(world) == [10]
    assert world.read() == b"0123456789"
    assert world.read(start=4, limit=3) == b"456"


def test_while_requests_press_only_what_is_read_is_sealed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "BLOCK_RECORDS", 4)
    monkeypatch.setattr(reading, "BLOCKS_PER_CHUNK", 8)
    world.service.on_scattered = world.sealer.hurry
    for name in ("read", "unread"):
        world.create(name)
        for number in range(12):
            world.append(name, body=b"%x" % number)
    assert world.read("read", limit=6) == b"012345"
    assert not world.sealer.step(pressed=True), "not worth it yet"
    assert world.read("read") == b"01234567", "and the rest later"
    while world.sealer.step(pressed=True):
        pass
    assert blocks_of(world, "read") == [12]
    assert world.read("read") == b"0123456789ab"
    assert len(blocks_of(world, "unread")) == 12
    world.seal()
    assert blocks_of(world, "unread") == [12]


def test_a_stream_that_was_loaded_in_many_records_is_sealed_when_it_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many there are is only counted while a stream is loaded."""
    monkeypatch.setattr(reading, "BLOCKS_PER_CHUNK", 8)
    world.create(content_type=JSON)
    for number in range(12):
        world.append(body=b"%d" % (number % 10), content_type=JSON)
    world.restart()
    world.service.on_scattered = world.sealer.hurry
    handle = world.service.look_up("default", "s")
    assert handle is not None
    chunk = world.service.read(handle, 0, 100)
    assert isinstance(chunk, Chunk)
    assert (chunk.end, chunk.scattered) == (8, True)
    world.seal()
    assert blocks_of(world) == [12]


def test_a_stream_made_anew_while_the_old_one_is_sealed_begins_unsealed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "BLOCK_RECORDS", 10)
    world.create()
    for _ in range(12):
        world.append(body=b"old")
    with world.held_disk():
        world.send("s", None)
        world.send("s", create())
        world.until_on_its_way()
        world.seal()
    world.settle()
    for _ in range(12):
        world.append(body=b"new")
    world.seal()
    assert blocks_of(world) == [36]


def test_a_walk_that_began_before_sealing_finds_nothing_twice(world: World) -> None:
    """Though another reader has made the sealed block a hot one."""
    world.create()
    messages = [b"%04d" % number + bytes(96) for number in range(2100)]
    for message in messages[:1100]:
        world.append(body=message)
    world.seal()
    for message in messages[1100:]:
        world.append(body=message)
    state = world.visible()
    assert state is not None
    walk = messages_between(world.store, state, 0, state.tail)
    found = [bytes(next(walk))]
    world.append(body=b"more" * 25)
    world.append(body=b"more" * 25)
    for _ in range(24):
        world.append(body=b"and more" * 12)
    world.seal()
    world.read()
    assert [*found, *map(bytes, walk)] == messages


def test_a_mebibyte_is_a_block(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "BLOCK_BYTES", 1000)
    world.create()
    for _ in range(25):
        world.append(body=b"x" * 100)
    world.seal()
    sizes = blocks_of(world)
    assert sum(sizes) == 2500
    assert sizes[:2] == [1000, 1000]
    assert max(sizes) <= 1000


def test_large_records_stay_as_they_are(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(sealing, "LARGE_RECORD_BYTES", 500)
    world.create()
    for size in (100, 100, 700, 100, 800, 900, 50):
        world.append(body=b"x" * size)
        world.seal()
    sizes = blocks_of(world)
    for size in (700, 800, 900):
        assert size in sizes
    assert sum(sizes) == 2750


def test_sealing_goes_on_after_a_restart(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "BLOCK_BYTES", 40)
    world.create()
    for number in range(30):
        world.append(body=b"%04d" % number)
        world.seal()
        if number % 7 == 0:
            world.restart()
    assert len(blocks_of(world)) < 15
    assert world.read() == b"".join(b"%04d" % number for number in range(30))


def test_a_fork_reads_across_sealed_and_unsealed_boundaries(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "BLOCK_RECORDS", 4)
    world.create("a", content_type=JSON)
    for number in range(10, 20):
        world.append("a", b"[%d]" % number)
    tails = [world.fork(f"f{at}", "a", at).tail for at in range(0, 22, 2)]
    assert tails == list(range(0, 22, 2))
    for at in range(0, 22, 2):
        world.append(f"f{at}", b"[77,88]")
    world.seal()
    for number in range(20, 30):
        world.append("a", b"[%d]" % number)
    world.seal()
    assert len(blocks_of(world, "a")) < 10
    for at in range(0, 22, 2):
        expected = b"".join(b"%d" % number for number in range(10, 20))[:at] + b"7788"
        assert world.read(f"f{at}") == expected
        for start in range(0, at + 4, 2):
            assert world.read(f"f{at}", start) == expected[start:]


def test_a_fork_may_begin_inside_a_sealed_block(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ends of appends and messages outlive the seal."""
    monkeypatch.setattr(sealing, "BLOCK_RECORDS", 4)
    world.create("a", content_type=JSON)
    for batch in (b"[1,2,3]", b"[4]", b"[5,6]", b"[7]"):
        world.append("a", batch)
    world.seal()
    assert blocks_of(world, "a") == [7]
    assert world.fork("f1", "a", 0, sub_offset=2).tail == 2
    assert world.fork("f2", "a", 1, sub_offset=2).tail == 3
    assert world.fork("f3", "a", 4, sub_offset=2).tail == 6
    assert world.read("f2") == b"123"


def test_a_damaged_record_keeps_only_its_own_stream_from_being_sealed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "BLOCK_RECORDS", 8)
    for name in ("damaged", "good"):
        world.create(name)
    for _ in range(8):
        world.append("damaged", b"abcd")
    state = world.visible("damaged")
    assert state is not None
    batch = world.store.batch()
    batch.put_blocks([(state.id, 12, b"\x01\x00\x00")])
    world.store.write(batch)
    with pytest.raises(StoreCorrupt, match="offset 12"):
        world.seal()
    for _ in range(8):
        world.append("good", b"abcd")
    world.seal()
    assert blocks_of(world, "good") == [32]
    assert world.read("damaged", limit=12) == b"abcd" * 3, "what lies before the damage is untouched"


def test_what_a_full_disk_refused_does_not_count_as_waiting_to_be_sealed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "BLOCK_RECORDS", 8)
    world.create()
    world.store.fail_writes = StoreFull("no space left")
    for _ in range(10):
        assert world.do("s", append(b"lost", content_type=BYTES)).refused
    world.store.fail_writes = None
    for _ in range(7):
        world.append(body=b"abcd")
        world.seal()
    assert blocks_of(world) == [4] * 7
    world.append(body=b"abcd")
    world.seal()
    assert blocks_of(world) == [32]


def test_a_step_reads_no_more_than_a_block(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the records are: all of it is read on the loop's thread."""
    monkeypatch.setattr(sealing, "BLOCK_RECORDS", 8)
    world.create()
    for _ in range(8):
        world.append(body=bytes(100_000))
    read = []
    values = world.store.block_values

    def counted(*span: int) -> Iterator[tuple[int, bytes]]:
        for offset, value in values(*span):
            read.append(len(value))
            yield offset, value

    monkeypatch.setattr(world.store, "block_values", counted)
    assert world.sealer.step()
    assert sum(read) <= 2 * 100_100


# Against a model


class Sealed(RuleBasedStateMachine):
    """Appends, seals step by step, trims, restarts and reads, in any order, on a stream and on a fork."""

    content_type = BYTES
    world: World  # one for all runs, each with streams of its own
    runs = 0

    def __init__(self) -> None:
        super().__init__()
        Sealed.runs += 1
        self.stream, self.fork_name = f"stream {Sealed.runs}", f"fork {Sealed.runs}"
        self.messages: dict[str, list[bytes]] = {self.stream: []}
        self.trimmed: dict[str, int] = {self.stream: 0}  # how many messages a snapshot stands for
        self.world.create(self.stream, content_type=self.content_type)

    @rule(
        to_fork=st.booleans(),
        bodies=st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=4), min_size=1, max_size=6),
    )
    def append(self, to_fork: bool, bodies: list[list[int]]) -> None:
        name = self.fork_name if to_fork and self.fork_name in self.messages else self.stream
        for sizes in bodies:
            messages = [b'"' + b"x" * size + b'"' for size in sizes]
            if self.content_type == JSON:
                body = b"[" + b",".join(messages) + b"]"
            else:
                body = b"".join(messages)
                messages = [body]
            self.world.send(name, append(body, content_type=self.content_type))
            self.messages[name] += messages
        self.world.settle()

    @rule(steps=st.integers(1, 8))
    def seal(self, steps: int) -> None:
        for _ in range(steps):
            self.world.sealer.step()

    @rule()
    def leave_memory(self) -> None:
        self.world.service.handles = Handles(self.world.store)

    @precondition(lambda self: self.fork_name not in self.messages and self.messages[self.stream])
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        messages = self.messages[self.stream]
        count = data.draw(st.integers(self.trimmed[self.stream], len(messages)))
        self.world.fork(self.fork_name, self.stream, sum(map(len, messages[:count])))
        self.messages[self.fork_name] = messages[:count]
        self.trimmed[self.fork_name] = self.trimmed[self.stream]

    @rule(of_fork=st.booleans(), data=st.data())
    def trim(self, of_fork: bool, data: st.DataObject) -> None:
        name = self.fork_name if of_fork and self.fork_name in self.messages else self.stream
        messages = self.messages[name]
        self.trimmed[name] = data.draw(st.integers(self.trimmed[name], len(messages)))
        answer = self.world.publish(self.start_of(name), name=name)
        self.world.settle()
        assert not answer.refused

    @rule()
    def collect_garbage(self) -> None:
        self.world.collect_garbage()

    def start_of(self, name: str) -> int:
        return sum(map(len, self.messages[name][: self.trimmed[name]]))

    @rule(data=st.data())
    def read_anywhere(self, data: st.DataObject) -> None:
        for name, messages in self.messages.items():
            whole = b"".join(messages)
            start = data.draw(st.integers(self.start_of(name), len(whole)))
            limit = data.draw(st.integers(1, 200))
            boundaries = set(accumulate(map(len, messages), initial=0))
            handle = self.world.handle(name)
            assert handle is not None
            chunk = self.world.service.read(handle, start, limit)
            if self.content_type == JSON and start not in boundaries:
                assert isinstance(chunk, Malformed)
                continue
            assert isinstance(chunk, Chunk)
            assert b"".join(chunk.pieces) == whole[chunk.start : chunk.end]
            assert chunk.start == start
            assert (chunk.end > start) == (start < len(whole)), "a reader gets on"
            if self.content_type == JSON:
                assert chunk.end in boundaries
                assert len(chunk.pieces) <= 1 or chunk.end - start <= limit
            else:
                assert chunk.end == min(start + limit, len(whole))

    @rule(limit=st.integers(1, 300))
    def read_in_pages(self, limit: int) -> None:
        for name, messages in self.messages.items():
            data: list[bytes] = []
            position = self.start_of(name)
            while (chunk := self.world.chunk(name, position, limit)).end > position:
                data += [bytes(piece) for piece in chunk.pieces]
                position = chunk.end
            kept = messages[self.trimmed[name] :]
            assert b"".join(data) == b"".join(kept)
            if self.content_type == JSON:
                assert data == kept

    @invariant()
    def everything_is_there(self) -> None:
        for name, messages in self.messages.items():
            kept = b"".join(messages[self.trimmed[name] :])
            assert self.world.read(name, self.start_of(name)) == kept


class SealedJson(Sealed):
    content_type = JSON


@pytest.mark.parametrize("machine", [Sealed, SealedJson])
def test_whatever_is_sealed_when_reads_give_what_was_appended(
    machine: type[Sealed], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Blocks of a few records, so that a short run meets every boundary; and no disk to wait for.
    for name, value in (("BLOCK_BYTES", 300), ("BLOCK_RECORDS", 6), ("LARGE_RECORD_BYTES", 110)):
        monkeypatch.setattr(sealing, name, value)
    monkeypatch.setattr(sealing, "RECORDS_PER_STEP", 3)
    world.store.skip_disk = True
    monkeypatch.setattr(Sealed, "world", world, raising=False)
    run_state_machine_as_test(machine)
    stored = [
        block for number in range(world.store.next_id()) for block in world.store.blocks(number, 0, 1 << 40)
    ]
    assert any(len(block.firsts) > 1 for block in stored), "there was something to test"
