import pytest

from perennial.protocol.producers import ACCEPT, Repeat, judge
from perennial.protocol.rejections import Fenced, Gap, Malformed
from perennial.protocol.state import ProducerClaim, ProducerState
from tests.builders import known


def claim(epoch: int, seq: int) -> ProducerClaim:
    return ProducerClaim("p", epoch, seq)


@pytest.mark.parametrize("epoch", [0, 1, 2, 2**53 - 1])
def test_an_unknown_producer_may_begin_in_any_epoch(epoch: int) -> None:
    assert judge(None, claim(epoch, 0)) is ACCEPT


@pytest.mark.parametrize("seq", [1, 2, 2**53 - 1])
def test_an_unknown_producer_must_begin_with_sequence_zero(seq: int) -> None:
    assert judge(None, claim(0, seq)) == Gap(expected=0, received=seq)


def test_the_next_sequence_is_accepted() -> None:
    assert judge(known(0, 0), claim(0, 1)) is ACCEPT
    assert judge(known(3, 41), claim(3, 42)) is ACCEPT


@pytest.mark.parametrize("seq", [0, 6, 7])
def test_an_old_sequence_is_a_repeat_and_told_the_highest_accepted(seq: int) -> None:
    assert judge(known(2, 7), claim(2, seq)) == Repeat(epoch=2, last_seq=7)


@pytest.mark.parametrize("seq", [9, 10, 1000])
def test_a_gap_is_told_what_was_expected(seq: int) -> None:
    assert judge(known(2, 7), claim(2, seq)) == Gap(expected=8, received=seq)


@pytest.mark.parametrize("seq", [0, 7, 8, 9])
def test_a_stale_epoch_is_fenced_and_told_the_current_one(seq: int) -> None:
    assert judge(known(5, 7), claim(4, seq)) == Fenced(current_epoch=5)


def test_a_new_epoch_begins_with_sequence_zero() -> None:
    assert judge(known(5, 7), claim(6, 0)) is ACCEPT
    assert judge(known(5, 7), claim(60, 0)) is ACCEPT


@pytest.mark.parametrize("seq", [1, 8])
def test_a_new_epoch_with_another_sequence_is_malformed(seq: int) -> None:
    assert isinstance(judge(known(5, 7), claim(6, seq)), Malformed)


def test_a_repeat_after_an_accepted_request_is_the_same_for_ever() -> None:
    state = ProducerState(0, 0)
    for seq in range(1, 5):
        assert judge(state, claim(0, seq)) is ACCEPT
        state = ProducerState(0, seq)
        assert judge(state, claim(0, seq)) == Repeat(0, seq)
