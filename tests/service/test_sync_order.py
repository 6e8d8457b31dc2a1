"""Nothing is answered, shown or acknowledged again before the disk has it."""

from functools import partial

import pytest

from perennial.protocol.append import AlreadyClosed
from perennial.protocol.create import Exists
from perennial.protocol.producers import Repeat
from perennial.protocol.rejections import Gap, Rejected, SequenceRegression, StreamClosed
from perennial.protocol.state import Appended, Closed
from perennial.service.streams import StreamService
from tests.builders import append, close, create, fork
from tests.service.world import Reader, World


def test_an_append_is_answered_and_shown_when_the_disk_has_it(world: World) -> None:
    world.create()
    with world.held_disk():
        answer = world.send("s", append(b"abc"))
        world.until_on_its_way()
        assert not answer.given
        assert world.read() == b""
    world.settle()
    assert isinstance(answer.outcome, Appended)
    assert answer.tail == 3
    assert world.read() == b"abc"


def test_a_creation_is_answered_and_shown_when_the_disk_has_it(world: World) -> None:
    with world.held_disk():
        answer = world.send("s", create(b"abc"))
        world.until_on_its_way()
        assert not answer.given
        assert not world.exists()
    world.settle()
    assert answer.tail == 3
    assert world.read() == b"abc"


def test_a_close_is_answered_and_shown_when_the_disk_has_it(world: World) -> None:
    world.create()
    with world.held_disk():
        answer = world.send("s", close())
        world.until_on_its_way()
        assert not answer.given
        visible = world.visible()
        assert visible is not None
        assert not visible.closed
    world.settle()
    assert isinstance(answer.outcome, Closed)
    visible = world.visible()
    assert visible is not None
    assert visible.closed


def test_a_deletion_is_answered_when_the_disk_has_it(world: World) -> None:
    world.create(body=b"abc")
    with world.held_disk():
        answer = world.send("s", None)
        world.until_on_its_way()
        assert not answer.given
        assert world.read() == b"abc", "a crash would bring it back"
    world.settle()
    assert answer.given
    assert not world.exists()


@pytest.mark.parametrize("times", [1, 3])
def test_a_repeated_producer_request_waits_for_the_first_to_be_safe(world: World, times: int) -> None:
    """Else a client would drop what a crash may still take."""
    world.create()
    command = append(b"abc", producer=("p", 0, 0))
    with world.held_disk():
        first = world.send("s", command)
        world.until_on_its_way()
        repeats = [world.send("s", command) for _ in range(times)]
        world.turn()
        assert not first.given
        assert not any(repeat.given for repeat in repeats)
    world.settle()
    assert isinstance(first.outcome, Appended)
    assert all(repeat.outcome == Repeat(0, 0) for repeat in repeats)
    assert world.read() == b"abc"


def test_a_second_close_waits_for_the_first(world: World) -> None:
    world.create()
    with world.held_disk():
        world.send("s", close())
        world.until_on_its_way()
        second = world.send("s", close())
        assert not second.given
    world.settle()
    assert second.outcome == AlreadyClosed()


def test_a_second_creation_waits_for_the_first(world: World) -> None:
    with world.held_disk():
        world.send("s", create())
        world.until_on_its_way()
        second = world.send("s", create())
        assert not second.given
    world.settle()
    assert second.outcome == Exists()


def test_a_refusal_that_rests_on_an_unsafe_state_waits_as_well(world: World) -> None:
    """ "It is closed" and "that sequence is used" are promises, too."""
    world.create()
    world.create("t")
    with world.held_disk():
        world.send("s", append(seq="b"))
        world.send("t", append(close=True))
        world.until_on_its_way()
        refusals = [world.send("s", append(seq="a")), world.send("t", append())]
        assert not any(refusal.given for refusal in refusals)
    world.settle()
    assert [refusal.outcome for refusal in refusals] == [SequenceRegression("b"), StreamClosed(1)]


def test_what_rests_on_nothing_new_is_answered_at_once(world: World) -> None:
    world.create()
    world.append(producer=("p", 0, 0))
    world.create("busy")
    with world.held_disk():
        world.send("busy", append())
        world.until_on_its_way()
        assert world.send("s", append(producer=("p", 0, 0))).outcome == Repeat(0, 0)
        assert world.send("s", append(producer=("p", 0, 5))).outcome == Gap(1, 5)
        assert world.send("missing", append()).refused


def test_answers_come_in_the_order_of_the_requests(world: World) -> None:
    world.create()
    order: list[int] = []
    service: StreamService = world.service

    def note(number: int, outcome: object, state: object) -> None:
        order.append(number)

    with world.held_disk():
        for number in range(20):
            service.append("default", "s", append(b"%02d" % number), partial(note, number))
            if number % 7 == 0:
                world.turn()
    world.settle()
    assert order == list(range(20))
    assert world.read() == b"".join(b"%02d" % number for number in range(20))


def test_a_fork_inherits_nothing_that_is_not_safe(world: World) -> None:
    world.create(body=b"safe")
    with world.held_disk():
        world.send("s", append(b"unsafe"))
        world.until_on_its_way()
        answer = world.send("f", fork("s"))
        beyond = world.send("g", fork("s", 10))
    world.settle()
    assert answer.tail == 4
    assert world.read("f") == b"safe"
    assert isinstance(beyond.outcome, Rejected)
    assert world.read("s") == b"safeunsafe"


def test_readers_are_woken_after_the_answer_and_see_the_data(world: World) -> None:
    world.create()
    handle = world.handle()
    assert handle is not None
    reader = Reader()
    world.service.watch(handle, reader)
    with world.held_disk():
        world.send("s", append(b"abc"))
        world.until_on_its_way()
        assert reader.woken == 0
    world.settle()
    assert reader.woken == 1
    assert world.read() == b"abc"
    world.service.unwatch(handle, reader)
    world.append()
    assert reader.woken == 1


def test_the_store_holds_everything_an_answer_speaks_of(world: World) -> None:
    """The block, the row, the producer and the counters go into one batch."""
    world.create()
    writes = world.store.writes
    answer = world.append(body=b"abc", producer=("p", 0, 0), seq="1")
    assert world.store.writes == writes + 1
    row = world.store.stream(b"default\0s")
    assert row is not None
    assert row.state == answer.state
    assert world.store.producer(row.state.id, "p") is not None
    assert world.stored_blocks(row.state.id) == 1
    assert world.store.next_id() > row.state.id
