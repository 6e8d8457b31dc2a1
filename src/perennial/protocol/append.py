"""May this append or close happen? The order of the checks is the protocol's; the first failure answers."""

import msgspec

from perennial.protocol.media import is_json, media_type
from perennial.protocol.messages import EMPTY_ARRAY, split_json
from perennial.protocol.producers import Repeat, judge
from perennial.protocol.rejections import (
    ContentTypeConflict,
    Malformed,
    Rejected,
    SequenceRegression,
    StreamClosed,
    StreamGone,
    StreamMissing,
)
from perennial.protocol.state import Appended, Closed, ProducerClaim, ProducerState, StreamState, grown


class Append(msgspec.Struct, frozen=True):
    """One POST: a body, a close, or both."""

    body: bytes
    content_type: str | None = None
    close: bool = False
    producer: ProducerClaim | None = None
    seq: str | None = None


class AlreadyClosed(msgspec.Struct, frozen=True):
    """The close asked for has happened; nothing changes and nothing is wrong."""


AppendOutcome = Appended | Closed | Repeat | AlreadyClosed | Rejected

EMPTY_BODY = Malformed("the body is empty: send bytes to append, or Stream-Closed: true to close the stream")
NO_CONTENT_TYPE = Malformed("Content-Type is required when there is a body")


def decide_append(
    state: StreamState | None, known: ProducerState | None, command: Append, now_ms: int
) -> AppendOutcome:
    """`known` is what the stream remembers of the command's producer, if it names one."""
    if state is None:
        return StreamMissing()
    if state.soft_deleted:
        return StreamGone()
    body = command.body
    producer = command.producer
    if not body:
        if not command.close:
            return EMPTY_BODY
    elif command.content_type is None:
        return NO_CONTENT_TYPE
    if state.closed:
        return _on_closed(state, command)
    if body and command.content_type != state.content_type:
        assert command.content_type is not None, "checked above"
        if media_type(command.content_type) != media_type(state.content_type):
            return ContentTypeConflict(state.content_type, command.content_type)
    if producer is not None:
        verdict = judge(known, producer)
        if verdict is not None:
            return verdict
    seq = command.seq
    if seq is not None and state.seq is not None and seq <= state.seq:
        return SequenceRegression(state.seq)
    if not body:
        return Closed(now_ms, producer, seq)
    if not is_json(state.content_type):
        return Appended(body, (len(body),), now_ms, producer, seq, command.close)
    messages = split_json(body)
    if isinstance(messages, Malformed):
        return messages
    if not messages:
        return EMPTY_ARRAY
    return appended_messages(messages, now_ms, producer, seq, command.close)


def append_plainly(state: StreamState, content_type: str, body: bytes, now_ms: int) -> StreamState | None:
    """The state after a body that is one message as it stands, which only another kind of stream than a JSON
    one takes. None if there is more to decide: `decide_append` and `apply` say the same, and all the rest.

    Most appends are like this, and deciding and applying separately takes 0.64 instead of 0.28 µs.
    """
    if not body or state.closed or state.soft_deleted or content_type != state.content_type:
        return None
    return grown(state, len(body), now_ms)


def appended_messages(
    messages: list[bytes],
    now_ms: int,
    producer: ProducerClaim | None = None,
    seq: str | None = None,
    closes: bool = False,
) -> Appended:
    if len(messages) == 1:
        return Appended(messages[0], (len(messages[0]),), now_ms, producer, seq, closes)
    ends = []
    end = 0
    for message in messages:
        end += len(message)
        ends.append(end)
    return Appended(b"".join(messages), tuple(ends), now_ms, producer, seq, closes)


def _on_closed(state: StreamState, command: Append) -> AlreadyClosed | Repeat | StreamClosed:
    producer = command.producer
    if producer is None:
        # A close that finds the stream closed has what it wants; a body has nowhere to go.
        return AlreadyClosed() if not command.body else StreamClosed(state.tail)
    if producer == state.closed_by:
        return Repeat(epoch=producer.epoch, last_seq=producer.seq)
    return StreamClosed(state.tail)
