"""Random commands through `decide…` and `apply`, against a model that only remembers what was accepted.

The model knows no rules of its own: it keeps every accepted byte and every accepted producer request, and
from those it says what must have been true of each decision.
"""

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from perennial.protocol.append import AlreadyClosed, Append, decide_append
from perennial.protocol.create import Anchor, Create, Exists, decide_create, decide_fork
from perennial.protocol.producers import Repeat
from perennial.protocol.rejections import (
    ConfigConflict,
    ContentTypeConflict,
    Fenced,
    Gap,
    Malformed,
    Rejected,
    SequenceRegression,
    SourceGone,
    SourceMissing,
    StreamClosed,
    StreamGone,
    StreamMissing,
)
from perennial.protocol.removal import after_release, decide_delete
from perennial.protocol.state import (
    Appended,
    Closed,
    ForkReleased,
    ForkTaken,
    ProducerClaim,
    ProducerState,
    Record,
    Removed,
    SoftDeleted,
    StreamState,
    apply,
)
from tests.builders import BYTES, JSON, NOW_MS, append, fork

NAMES = ("red", "green", "blue", "grey")
SELDOM = st.sampled_from([False, False, False, True])


class Incarnation:
    """All that ever happened to one created stream, and all it should hold."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.inherited: list[bytes] = []  # messages of a fork's ancestors, as they were at its creation
        self.batches: list[list[bytes]] = []  # messages by accepted append
        self.offsets: list[int] = []
        self.claims: list[ProducerClaim] = []
        self.seqs: list[str] = []
        self.closed = False

    @property
    def messages(self) -> list[bytes]:
        return [*self.inherited, *(message for batch in self.batches for message in batch)]

    def highest(self, producer: str) -> ProducerClaim | None:
        """By epoch, then by sequence: where this producer stands."""
        mine = [claim for claim in self.claims if claim.id == producer]
        return max(mine, key=lambda claim: (claim.epoch, claim.seq), default=None)


class Streams(RuleBasedStateMachine):
    """A server of pure functions: states by name, stored bytes by stream id."""

    sent = Bundle("sent")

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, StreamState] = {}
        self.told: dict[str, Incarnation] = {}
        self.blocks: dict[int, list[tuple[int, bytes, list[int]]]] = {}
        self.next_id = 1
        self.now_ms = NOW_MS

    # Commands

    @initialize(content_type=st.sampled_from([BYTES, JSON]))
    def begin_with_one(self, content_type: str) -> None:
        self.create(NAMES[0], closed=False, body=b"[1,22]", content_type=content_type, ttl_seconds=None)

    @rule(
        name=st.sampled_from(NAMES[:2]),
        body=st.sampled_from([b"", b"[]", b"[1]", b'["a", {"b": [2]}]', b"{"]),
        content_type=st.sampled_from([None, BYTES, JSON]),
        closed=SELDOM,
        ttl_seconds=st.sampled_from([None, None, 60]),
    )
    def create(self, name: str, closed: bool, **settings: Any) -> None:
        command = Create(closed=closed, **settings)
        before = self.states.get(name)
        outcome = decide_create(before, command, self.next_id, self.now_ms)
        if before is not None:
            assert isinstance(outcome, Exists | Rejected)
            same = (before.closed, before.ttl_seconds) == (
                closed,
                command.ttl_seconds,
            ) and before.origin is None
            if isinstance(outcome, Exists):
                assert same
            elif isinstance(outcome, ConfigConflict):
                assert not same or (command.content_type or BYTES) != before.content_type
            return
        if isinstance(outcome, Malformed):
            assert command.content_type == JSON
            assert command.body == b"{"
            return
        assert isinstance(outcome, list)
        self._accept_all(name, outcome)
        self.told[name].closed = closed

    @rule(
        target=sent,
        name=st.sampled_from(NAMES),
        body=st.sampled_from([b"[1]", b'[[1], {"a": 2}, "three"]', b"7", b"", b"[]", b"{"]),
        other_type=SELDOM,
        close=SELDOM,
        producer=st.none()
        | st.tuples(
            st.sampled_from("pq"), st.sampled_from([0, 0, 0, 1, 2]), st.sampled_from([0, 0, 1, 2, 3, 4])
        ),
        seq=st.none() | st.sampled_from(["1", "10", "2"]),
    )
    def post(self, name: str, other_type: bool, **parts: Any) -> tuple[str, Append]:
        state = self.states.get(name)
        content_type = BYTES if state is None else state.content_type
        if other_type:
            content_type = JSON if content_type == BYTES else BYTES
        command = append(content_type=content_type, **parts)
        self._post(name, command)
        return name, command

    @rule(
        target=sent,
        name=st.sampled_from(NAMES),
        producer=st.sampled_from("pq"),
        ahead=st.sampled_from([0, 0, 0, 1, 2]),
        new_epoch=SELDOM,
        body=st.sampled_from([b"[4]", b"[4,[5]]"]),
    )
    def post_the_next_of_a_producer(
        self, name: str, producer: str, ahead: int, new_epoch: bool, body: bytes
    ) -> tuple[str, Append]:
        told, state = self.told.get(name), self.states.get(name)
        last = None if told is None else told.highest(producer)
        epoch, seq = (0, 0) if last is None else (last.epoch, last.seq + 1)
        if new_epoch:
            epoch, seq = epoch + 1, 0
        content_type = BYTES if state is None else state.content_type
        command = append(body, content_type=content_type, producer=(producer, epoch, seq + ahead))
        outcome = self._post(name, command)
        if state is not None and not state.closed and not state.soft_deleted:
            assert isinstance(outcome, Appended) == (ahead == 0)
        return name, command

    @rule(again=sent)
    def send_again(self, again: tuple[str, Append]) -> None:
        """A client that lost our answer: with a producer, nothing it sends twice may happen twice."""
        name, command = again
        told = self.told.get(name)
        accepted = told is not None and command.producer in told.claims
        before = self.states.get(name)
        outcome = self._post(name, command)
        if accepted and command.producer is not None:
            assert not isinstance(outcome, Appended | Closed)
            assert self.states.get(name) == before

    @rule(
        name=st.sampled_from(NAMES),
        source=st.sampled_from(NAMES),
        place=st.none() | st.integers(0, 2),
        beside=st.sampled_from([0, 0, 0, 1, 40]),
        sub_offset=st.sampled_from([0, 0, 1, 2, 5]),
        body=st.sampled_from([b"", b"[7,8]"]),
    )
    def fork(
        self, name: str, source: str, place: int | None, beside: int, sub_offset: int, body: bytes
    ) -> None:
        state = self.states.get(source)
        offset = None
        if place is not None:
            messages = self.told[source].messages if source in self.told else []
            offset = sum(map(len, messages[:place])) + beside
        command = fork(source, offset, sub_offset, body)
        existing = self.states.get(name)
        if existing is not None:
            assert isinstance(decide_create(existing, command, self.next_id, self.now_ms), Exists | Rejected)
            return
        anchor = None if state is None else self._anchor(state, state.tail if offset is None else offset)
        outcome = decide_fork(state, anchor, command, self.next_id, self.now_ms)
        if state is None:
            assert outcome == SourceMissing()
        elif state.soft_deleted:
            assert outcome == SourceGone()
        elif isinstance(outcome, list):
            self._accept(source, ForkTaken())
            parent = self.told[source]
            self._accept_all(name, outcome)
            self._remember_inherited(self.states[name], self.told[name], parent, sub_offset)
        else:
            assert isinstance(outcome, Malformed)

    @rule(name=st.sampled_from(NAMES), really=SELDOM)
    def delete(self, name: str, really: bool) -> None:
        if not really:
            return
        outcome = decide_delete(self.states.get(name))
        if isinstance(outcome, Rejected):
            before = self.states.get(name)
            assert outcome == (StreamMissing() if before is None else StreamGone())
            return
        self._remove(name, outcome)

    # Laws

    @invariant()
    def streams_hold_what_was_accepted_and_forks_what_they_inherited(self) -> None:
        for name, state in self.states.items():
            messages = self.told[name].messages
            assert self._read(state) == b"".join(messages), name
            if state.content_type == JSON:
                assert all(json.loads(message) is not Ellipsis for message in messages), "each is JSON"
            assert state.tail == len(self._read(state))

    @invariant()
    def offsets_only_grow(self) -> None:
        for told in self.told.values():
            assert all(a < b for a, b in zip(told.offsets, told.offsets[1:], strict=False))

    @invariant()
    def a_stream_is_closed_when_it_was_told_to_and_for_ever(self) -> None:
        for name, state in self.states.items():
            assert state.closed == self.told[name].closed

    @invariant()
    def sequences_only_grow(self) -> None:
        for told in self.told.values():
            assert all(a < b for a, b in zip(told.seqs, told.seqs[1:], strict=False))

    @invariant()
    def producers_are_heard_exactly_once_and_without_gaps(self) -> None:
        for told in self.told.values():
            for producer in "pq":
                mine = [(claim.epoch, claim.seq) for claim in told.claims if claim.id == producer]
                for before, after in zip([None, *mine], mine, strict=False):
                    follows = before is not None and after == (before[0], before[1] + 1)
                    restarts = after[1] == 0 and (before is None or after[0] > before[0])
                    assert follows or restarts, mine

    @invariant()
    def references_are_the_forks_that_are_there(self) -> None:
        for name, state in self.states.items():
            forks = [other for other in self.states.values() if other.origin and other.origin.name == name]
            assert state.forks == len(forks)
            assert not (state.soft_deleted and state.forks == 0)

    def teardown(self) -> None:
        for name, told in self.told.items():
            state: StreamState | None = None
            for record in told.records:
                state = apply(state, record)
            assert state == self.states.get(name), "records give the state again"

    # Steps

    def _post(self, name: str, command: Append) -> Any:
        before = self.states.get(name)
        told = self.told.get(name)
        claim = command.producer
        last = None if told is None or claim is None else told.highest(claim.id)
        known = None if last is None else ProducerState(last.epoch, last.seq)
        outcome = decide_append(before, known, command, self.now_ms)
        if isinstance(outcome, Appended | Closed):
            assert before is not None
            assert not before.closed
            assert not before.soft_deleted
            self._accept(name, outcome)
            self.told[name].closed = command.close
            self.now_ms += 1
        elif isinstance(outcome, Repeat | AlreadyClosed | Rejected):
            self._explain(outcome, before, last, command)
        return outcome

    def _explain(
        self, outcome: Any, before: StreamState | None, last: ProducerClaim | None, command: Append
    ) -> None:
        """Every other answer speaks of something that is so."""
        claim = command.producer
        match outcome:
            case StreamMissing():
                assert before is None
            case StreamGone():
                assert before is not None
                assert before.soft_deleted
            case StreamClosed(tail):
                assert before is not None
                assert before.closed
                assert tail == before.tail
            case AlreadyClosed():
                assert before is not None
                assert before.closed
                assert not command.body
            case Repeat(epoch, last_seq):
                assert claim is not None
                assert last is not None
                assert (claim.epoch, claim.id) == (last.epoch, last.id) == (epoch, claim.id)
                assert claim.seq <= last_seq == last.seq
            case Fenced(current_epoch):
                assert claim is not None
                assert last is not None
                assert claim.epoch < last.epoch == current_epoch
            case Gap(expected, received):
                assert claim is not None
                assert expected == (0 if last is None else last.seq + 1) < received == claim.seq
            case SequenceRegression(seq):
                assert before is not None
                assert command.seq is not None
                assert command.seq <= seq == before.seq
            case ContentTypeConflict(expected_type, received_type):
                assert before is not None
                assert command.content_type == received_type != expected_type == before.content_type
            case _:
                assert isinstance(outcome, Malformed)

    def _accept_all(self, name: str, records: list[Record]) -> None:
        self.next_id += 1
        self.told[name] = Incarnation()
        for record in records:
            self._accept(name, record)

    def _accept(self, name: str, record: Record) -> None:
        before, told = self.states.get(name), self.told[name]
        after = apply(before, record)
        told.records.append(record)
        if isinstance(record, Appended | Closed):
            assert before is not None
            assert after is not None
            if isinstance(record, Appended):
                ends = list(record.ends)
                assert ends[-1] == len(record.payload) > 0
                cuts = [0, *ends]
                told.batches.append([record.payload[a:b] for a, b in zip(cuts, ends, strict=False)])
                told.offsets.append(after.tail)
                self.blocks.setdefault(before.id, []).append((before.tail, record.payload, ends))
            if record.producer is not None:
                assert record.producer not in told.claims, "exactly once"
                told.claims.append(record.producer)
            if record.seq is not None:
                told.seqs.append(record.seq)
        if after is None:
            del self.states[name], self.told[name]
        else:
            self.states[name] = after

    def _remove(self, name: str, record: Removed | SoftDeleted) -> None:
        state = self.states[name]
        self._accept(name, record)
        if isinstance(record, Removed) and state.origin is not None:
            source = state.origin.name
            self._accept(source, ForkReleased())
            last = after_release(self.states[source])
            if isinstance(last, Removed):
                self._remove(source, last)

    def _read(self, state: StreamState) -> bytes:
        """What is stored, by the segments the state names."""
        data = b""
        for segment_id, end in [*((s.id, s.end) for s in state.lineage), (state.id, state.tail)]:
            for offset, payload, _ in self.blocks.get(segment_id, []):
                data += (
                    payload[max(0, len(data) - offset) : max(0, end - offset)]
                    if offset + len(payload) > len(data)
                    else b""
                )
        return data

    def _anchor(self, state: StreamState, position: int) -> Anchor | None:
        if position > state.tail:
            return None
        if position == state.tail:
            return Anchor(aligned=True, following=())
        start = 0
        for segment_id, end in [*((s.id, s.end) for s in state.lineage), (state.id, state.tail)]:
            if start <= position < end:
                for offset, payload, ends in self.blocks[segment_id]:
                    if offset <= position < offset + len(payload):
                        absolute = [offset + relative for relative in ends]
                        aligned = position == offset or position in absolute
                        return Anchor(aligned, [after for after in absolute if after > position])
            start = end
        raise AssertionError("every position before the tail is stored somewhere")

    def _remember_inherited(
        self, state: StreamState, told: Incarnation, parent: Incarnation, sub_offset: int
    ) -> None:
        """Whole messages of the parent, and for bytes perhaps a part of the last one."""
        assert state.origin is not None
        left = state.origin.offset
        for index, message in enumerate(parent.messages):
            if left <= 0:
                following = parent.messages[index:]
                told.inherited += following[:sub_offset] if state.content_type == JSON else []
                break
            told.inherited.append(message[:left])
            left -= len(message)
        if state.content_type == JSON:
            assert left == 0, "a JSON fork begins between messages"
        else:
            whole = b"".join(parent.messages)
            told.inherited = [whole[: state.origin.offset + sub_offset]]


TestStreams = Streams.TestCase
TestStreams.settings = settings(max_examples=3 * settings.default.max_examples)  # type: ignore[union-attr]  # never None with a profile
