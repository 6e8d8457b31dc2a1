import msgspec
import pytest

from perennial.protocol.state import (
    Created,
    ForkOrigin,
    ForkReleased,
    ForkTaken,
    ProducerClaim,
    Removed,
    Snapshot,
    SnapshotPublished,
    SoftDeleted,
    StreamState,
    apply,
)
from tests.builders import BYTES, JSON, NOW_MS, appended, closed, inherits, stream


def published(state: StreamState, offset: int, *, size: int) -> StreamState:
    """With a snapshot whose blob is numbered by its offset."""
    after = apply(state, SnapshotPublished(Snapshot(offset, BYTES, size, blob=offset, owner=state.id)))
    assert after is not None
    return after


def test_a_created_stream_is_open_and_empty() -> None:
    state = apply(None, Created(id=7, content_type=JSON, at_ms=NOW_MS, ttl_seconds=60))
    assert state == StreamState(
        id=7, content_type=JSON, created_ms=NOW_MS, last_write_ms=NOW_MS, ttl_seconds=60
    )
    assert (state.tail, state.closed, state.base) == (0, False, 0)


def test_a_fork_begins_at_the_end_of_what_it_inherits() -> None:
    origin = ForkOrigin("default", "source", 4, 2)
    state = stream(origin=origin, lineage=inherits((1, 3), (2, 6)))
    assert (state.tail, state.base) == (6, 6)
    assert state.origin == origin


def test_an_append_moves_the_tail_by_its_bytes() -> None:
    state = stream(appended(b"abc"), appended(b"de", at_ms=NOW_MS + 5))
    assert state.tail == 5
    assert state.created_ms == NOW_MS
    assert state.last_write_ms == NOW_MS + 5


def test_an_append_keeps_everything_else() -> None:
    before = stream(
        ForkTaken(),
        content_type=JSON,
        id=9,
        ttl_seconds=5,
        expires_at_ms=NOW_MS,
        origin=ForkOrigin("default", "source", 4, 0),
        lineage=inherits((1, 4)),
    )
    for offset in (4, 4):
        before = published(before, offset, size=3)
        before = apply(before, ForkTaken()) or before
    assert before.kept_for_forks == 3
    after = apply(before, appended(b"[1]"))
    assert after is not None
    changed = {"tail", "last_write_ms", "closed", "closed_by", "seq"}
    for field in set(StreamState.__struct_fields__) - changed:
        assert getattr(after, field) == getattr(before, field), field


def test_an_append_remembers_its_sequence_and_one_without_keeps_the_last() -> None:
    assert stream(appended(seq="a")).seq == "a"
    assert stream(appended(seq="a"), appended()).seq == "a"
    assert stream(appended(seq="a"), appended(seq="b")).seq == "b"


def test_a_close_is_remembered_with_who_did_it() -> None:
    state = stream(appended(b"abc"), closed(producer=("p", 1, 2), seq="z", at_ms=NOW_MS + 9))
    assert state.closed
    assert state.closed_by == ProducerClaim("p", 1, 2)
    assert (state.tail, state.seq, state.last_write_ms) == (3, "z", NOW_MS + 9)


def test_an_append_may_close_in_the_same_step() -> None:
    state = stream(appended(b"end", producer=ProducerClaim("p", 0, 0), closes=True))
    assert (state.tail, state.closed, state.closed_by) == (3, True, ProducerClaim("p", 0, 0))


def test_an_append_that_does_not_close_remembers_no_closer() -> None:
    assert stream(appended(producer=ProducerClaim("p", 0, 0))).closed_by is None


def test_forks_are_counted() -> None:
    state = stream(ForkTaken(), ForkTaken(), ForkReleased())
    assert state.forks == 1


def test_what_is_kept_for_forks_is_counted() -> None:
    state = published(stream(appended(b"0123456789"), id=1), 2, size=100)
    assert state.kept_for_forks == 0, "without forks, nothing is"
    state = apply(state, ForkTaken()) or state
    state = published(state, 5, size=20)
    assert (state.kept_blobs, state.kept_for_forks) == ((2,), 100 + 3)
    state = published(state, 9, size=7)
    assert (state.kept_blobs, state.kept_for_forks) == ((2,), 100 + 3 + 4), "nobody has taken the second over"
    state = apply(apply(state, ForkTaken()), ForkReleased()) or state
    assert state.kept_for_forks == 107
    state = apply(state, ForkReleased()) or state
    assert (state.kept_blobs, state.kept_for_forks) == ((), 0)


def test_a_fork_keeps_only_what_is_its_own_for_its_forks() -> None:
    fork = stream(ForkTaken(), appended(b"abcd"), id=9, lineage=inherits((1, 4)))
    assert published(fork, 3, size=5).kept_for_forks == 0
    assert published(fork, 6, size=5).kept_for_forks == 2


def test_rows_from_before_it_was_counted_can_be_read() -> None:
    row = msgspec.msgpack.decode(msgspec.msgpack.encode(stream(appended(b"abc"))))
    assert msgspec.convert(row[:-1], StreamState) == stream(appended(b"abc"))


def test_soft_deletion_keeps_the_stream_for_its_forks() -> None:
    state = stream(appended(b"abc"), ForkTaken(), SoftDeleted())
    assert state.soft_deleted
    assert (state.tail, state.forks) == (3, 1)


def test_removal_leaves_nothing() -> None:
    assert apply(stream(appended()), Removed()) is None


def test_states_are_values() -> None:
    before = stream(appended(b"abc"), content_type=BYTES)
    apply(before, appended(b"more"))
    assert before == stream(appended(b"abc"))
    with pytest.raises(AttributeError):
        before.tail = 9  # type: ignore[misc]
