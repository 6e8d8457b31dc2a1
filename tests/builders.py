"""Commands and states with defaults, so that a test spells out only what it is about."""

from typing import Any

from perennial.protocol.append import Append
from perennial.protocol.create import Create, ForkRequest
from perennial.protocol.names import DEFAULT_BUCKET
from perennial.protocol.state import (
    Appended,
    Closed,
    Created,
    Inherited,
    ProducerClaim,
    ProducerState,
    Record,
    StreamState,
    apply,
)

NOW_MS = 1_750_000_000_000
BYTES = "application/octet-stream"
JSON = "application/json"
TEXT = "text/plain"

Claim = tuple[str, int, int]
"""A producer's id, epoch and sequence number."""


# Commands


def append(
    body: bytes = b"x",
    *,
    content_type: str | None = BYTES,
    close: bool = False,
    producer: Claim | None = None,
    seq: str | None = None,
) -> Append:
    return Append(body, content_type, close, None if producer is None else ProducerClaim(*producer), seq)


def close(*, producer: Claim | None = None, seq: str | None = None) -> Append:
    return append(b"", content_type=None, close=True, producer=producer, seq=seq)


def create(body: bytes = b"", content_type: str | None = BYTES, **rest: Any) -> Create:
    return Create(body=body, content_type=content_type, **rest)


def fork(
    source: str = "source", offset: int | None = None, sub_offset: int = 0, body: bytes = b"", **rest: Any
) -> Create:
    """A PUT that forks; the content type is inherited unless given."""
    return Create(body=body, fork=ForkRequest(DEFAULT_BUCKET, source, offset, sub_offset), **rest)


# States


def stream(*records: Record, content_type: str = BYTES, id: int = 1, **settings: Any) -> StreamState:
    """A created stream after `records`."""
    state = apply(None, Created(id=id, content_type=content_type, at_ms=NOW_MS, **settings))
    for record in records:
        state = apply(state, record)
    assert state is not None, "builders end with a stream that is there"
    return state


def appended(
    payload: bytes = b"x", *, ends: tuple[int, ...] | None = None, at_ms: int = NOW_MS, **rest: Any
) -> Appended:
    return Appended(payload, ends or (len(payload),), at_ms, **rest)


def closed(*, producer: Claim | None = None, seq: str | None = None, at_ms: int = NOW_MS) -> Closed:
    return Closed(at_ms, None if producer is None else ProducerClaim(*producer), seq)


def inherits(*segments: tuple[int, int]) -> tuple[Inherited, ...]:
    return tuple(Inherited(id, end) for id, end in segments)


def known(epoch: int, last_seq: int) -> ProducerState:
    return ProducerState(epoch, last_seq)
