"""The order of the checks is the protocol's: each test of the second half pins which refusal wins."""

import pytest

from perennial.protocol.append import AlreadyClosed, Append, AppendOutcome, decide_append
from perennial.protocol.producers import Repeat
from perennial.protocol.rejections import (
    ContentTypeConflict,
    Fenced,
    Gap,
    Malformed,
    SequenceRegression,
    StreamClosed,
    StreamGone,
    StreamMissing,
)
from perennial.protocol.state import (
    Appended,
    Closed,
    ForkTaken,
    ProducerClaim,
    ProducerState,
    SoftDeleted,
    StreamState,
)
from tests.builders import JSON, NOW_MS, TEXT, append, appended, close, closed, known, stream


def decide(state: StreamState | None, command: Append, known: ProducerState | None = None) -> AppendOutcome:
    return decide_append(state, known, command, NOW_MS)


# What is accepted


def test_a_body_is_one_message_of_a_byte_stream() -> None:
    assert decide(stream(), append(b"[1,2]")) == Appended(b"[1,2]", (5,), NOW_MS)


def test_a_body_is_split_into_messages_of_a_json_stream() -> None:
    outcome = decide(stream(content_type=JSON), append(b'[1, {"a": 2}, [3]]', content_type=JSON))
    assert outcome == Appended(b'1{"a": 2}[3]', (1, 9, 12), NOW_MS)


def test_a_single_json_value_is_one_message() -> None:
    outcome = decide(stream(content_type=JSON), append(b' {"a": 2}\n', content_type=JSON))
    assert outcome == Appended(b'{"a": 2}', (8,), NOW_MS)


def test_a_body_may_close() -> None:
    assert decide(stream(), append(b"end", close=True)) == Appended(b"end", (3,), NOW_MS, closes=True)


def test_an_empty_body_may_close() -> None:
    assert decide(stream(), close()) == Closed(NOW_MS)


def test_everything_the_command_says_goes_into_the_record() -> None:
    command = append(b"x", close=True, producer=("p", 0, 0), seq="s")
    assert decide(stream(), command) == Appended(b"x", (1,), NOW_MS, ProducerClaim("p", 0, 0), "s", True)
    assert decide(stream(), close(producer=("p", 0, 0), seq="s")) == Closed(
        NOW_MS, ProducerClaim("p", 0, 0), "s"
    )


@pytest.mark.parametrize(
    "content_type", ["text/plain", "TEXT/Plain", "text/plain; charset=utf-8", "text/plain;q=1"]
)
def test_the_media_type_alone_must_match(content_type: str) -> None:
    outcome = decide(stream(content_type="text/plain; charset=latin-1"), append(content_type=content_type))
    assert isinstance(outcome, Appended)


@pytest.mark.parametrize(
    ("last", "seq"), [(None, ""), (None, "0"), ("09", "10"), ("a", "b"), ("B", "a"), ("a", "aa"), ("z", "é")]
)
def test_a_greater_sequence_is_accepted(last: str | None, seq: str) -> None:
    state = stream() if last is None else stream(appended(seq=last))
    assert isinstance(decide(state, append(seq=seq)), Appended)


@pytest.mark.parametrize(
    ("last", "seq"),
    [("2", "10"), ("a", "a"), ("a", "B"), ("b", "a"), ("aa", "a"), ("a", ""), ("", ""), ("é", "z")],
)
def test_a_sequence_is_compared_byte_by_byte_and_must_grow(last: str, seq: str) -> None:
    assert decide(stream(appended(seq=last)), append(seq=seq)) == SequenceRegression(last)
    assert decide(stream(appended(seq=last)), close(seq=seq)) == SequenceRegression(last)


# What is refused, in order


def test_a_missing_stream_wins_over_everything() -> None:
    assert decide(None, append(b"", content_type=None)) == StreamMissing()


def test_a_deleted_stream_is_gone_before_the_body_is_looked_at() -> None:
    state = stream(ForkTaken(), closed(), SoftDeleted())
    assert decide(state, append(b"")) == StreamGone()
    assert decide(state, close()) == StreamGone()


def test_an_empty_body_is_malformed_even_on_a_closed_stream() -> None:
    assert isinstance(decide(stream(), append(b"")), Malformed)
    assert isinstance(decide(stream(), append(b"", producer=("p", 0, 0))), Malformed)
    assert isinstance(decide(stream(closed()), append(b"")), Malformed)


def test_a_body_without_content_type_is_malformed_even_on_a_closed_stream() -> None:
    assert isinstance(decide(stream(), append(content_type=None)), Malformed)
    assert isinstance(decide(stream(closed()), append(content_type=None)), Malformed)


def test_a_close_does_not_care_for_the_content_type() -> None:
    assert decide(stream(), append(b"", content_type=TEXT, close=True)) == Closed(NOW_MS)


def test_closed_wins_over_content_type() -> None:
    assert decide(stream(appended(b"abc"), closed()), append(content_type=TEXT)) == StreamClosed(tail=3)


def test_closed_wins_over_a_stale_epoch_and_a_gap() -> None:
    state = stream(appended(b"abc"), closed())
    assert decide(state, append(producer=("p", 0, 0)), known(5, 0)) == StreamClosed(tail=3)
    assert decide(state, append(producer=("p", 0, 9)), known(0, 0)) == StreamClosed(tail=3)


def test_closed_wins_over_a_repeat_that_did_not_close() -> None:
    state = stream(appended(b"abc"), closed(producer=("p", 0, 1)))
    assert decide(state, append(producer=("p", 0, 0)), known(0, 1)) == StreamClosed(tail=3)


def test_content_type_wins_over_the_producer() -> None:
    outcome = decide(stream(), append(content_type=TEXT, producer=("p", 0, 9)))
    assert outcome == ContentTypeConflict("application/octet-stream", TEXT)


def test_the_producer_wins_over_the_sequence() -> None:
    state = stream(appended(seq="b"))
    assert decide(state, append(producer=("p", 0, 0), seq="a"), known(0, 0)) == Repeat(0, 0)
    assert decide(state, append(producer=("p", 0, 2), seq="a"), known(0, 0)) == Gap(1, 2)
    assert decide(state, append(producer=("p", 0, 1), seq="a"), known(1, 0)) == Fenced(1)


def test_the_sequence_wins_over_broken_json() -> None:
    state = stream(appended(b"1", seq="b"), content_type=JSON)
    assert decide(state, append(b"{", content_type=JSON, seq="a")) == SequenceRegression("b")


@pytest.mark.parametrize("body", [b"{", b"[]", b" [ ] ", b"[1,]", b"\xff"])
def test_a_json_stream_takes_messages_only(body: bytes) -> None:
    assert isinstance(decide(stream(content_type=JSON), append(body, content_type=JSON)), Malformed)
    assert isinstance(decide(stream(), append(body)), Appended)


def test_a_repeat_is_answered_before_its_body_is_read() -> None:
    state = stream(content_type=JSON)
    assert decide(state, append(b"{", content_type=JSON, producer=("p", 0, 0)), known(0, 0)) == Repeat(0, 0)


# Closing again


def test_a_second_close_finds_the_stream_as_it_wants_it() -> None:
    assert decide(stream(closed()), close()) == AlreadyClosed()
    assert decide(stream(closed(producer=("p", 0, 0))), close()) == AlreadyClosed()


def test_a_body_has_nowhere_to_go_once_closed() -> None:
    assert decide(stream(appended(b"abc"), closed()), append(close=True)) == StreamClosed(tail=3)


@pytest.mark.parametrize("body", [b"", b"end", b"another body"])
def test_the_request_that_closed_may_be_sent_again(body: bytes) -> None:
    state = stream(appended(b"end", producer=ProducerClaim("p", 0, 4), closes=True))
    command = append(body, close=True, producer=("p", 0, 4))
    assert decide(state, command, known(0, 4)) == Repeat(epoch=0, last_seq=4)


@pytest.mark.parametrize("claim", [("q", 0, 4), ("p", 1, 4), ("p", 0, 3), ("p", 0, 5), ("p", 1, 0)])
def test_any_other_producer_request_is_told_it_is_closed(claim: tuple[str, int, int]) -> None:
    state = stream(appended(b"end", producer=ProducerClaim("p", 0, 4), closes=True))
    for command in (append(close=True, producer=claim), close(producer=claim), append(producer=claim)):
        assert decide(state, command, known(0, 4)) == StreamClosed(tail=3)
