"""The one step of a plain append says what deciding and applying say, whatever the stream went through."""

from hypothesis import given, settings
from hypothesis import strategies as st

from perennial.protocol.append import Append, append_plainly, decide_append
from perennial.protocol.media import is_json
from perennial.protocol.state import (
    Appended,
    ForkOrigin,
    Inherited,
    ProducerClaim,
    Snapshot,
    StreamState,
    apply,
)
from tests.properties.profiles import examples

numbers = st.integers(0, 1 << 53)
moments = st.integers(0, 1 << 45)
texts = st.text(max_size=6)
SELDOM = st.sampled_from([False, False, False, True])
# Some are the same to the protocol, and not to the letter.
CONTENT_TYPES = [
    "text/plain",
    "TEXT/Plain",
    "text/plain; charset=utf-8",
    "application/octet-stream",
    "application/json",
    "Application/JSON; a=b",
]
states = st.builds(
    StreamState,
    id=numbers,
    content_type=st.sampled_from(CONTENT_TYPES),
    created_ms=moments,
    last_write_ms=moments,
    ttl_seconds=st.none() | numbers,
    expires_at_ms=st.none() | moments,
    tail=numbers,
    closed=SELDOM,
    closed_by=st.none() | st.builds(ProducerClaim, texts, numbers, numbers),
    seq=st.none() | texts,
    origin=st.none() | st.builds(ForkOrigin, texts, texts, numbers, numbers),
    lineage=st.lists(st.builds(Inherited, numbers, numbers), max_size=3).map(tuple),
    forks=st.integers(0, 3),
    soft_deleted=SELDOM,
    snapshot=st.none() | st.builds(Snapshot, numbers, texts, numbers, numbers, numbers, st.booleans()),
    kept_blobs=st.lists(numbers, max_size=2).map(tuple),
    kept_for_forks=numbers,
)
PLAIN_TYPES = [each for each in CONTENT_TYPES if not is_json(each)]
bodies = st.sampled_from([b"x", b"\r\n\0\xff", b"long" * 10_000, b'{"a": 1}', b""])


@st.composite
def encounters(draw: st.DrawFn) -> tuple[StreamState, str]:
    """A stream, and the content type of an append to it: not of JSON, and often the same."""
    state = draw(states)
    same = [] if is_json(state.content_type) else [state.content_type] * len(PLAIN_TYPES)
    return state, draw(st.sampled_from(PLAIN_TYPES + same))


@settings(max_examples=examples(5))
@given(encounters(), bodies, moments)
def test_a_plain_append_is_decided_and_applied_as_any_other(
    encounter: tuple[StreamState, str], body: bytes, now_ms: int
) -> None:
    state, content_type = encounter
    after = append_plainly(state, content_type, body, now_ms)
    if after is not None:
        outcome = decide_append(state, None, Append(body, content_type), now_ms)
        assert isinstance(outcome, Appended)
        assert (outcome.payload, tuple(outcome.ends)) == (body, (len(body),)), "one message, as it stands"
        assert apply(state, outcome) == after
    is_open = not state.closed and not state.soft_deleted
    assert (after is not None) == (bool(body) and is_open and content_type == state.content_type)
