"""May this stream be created, plain or as a fork of another? (base protocol 5.1; forks: today's protocol)"""

from collections.abc import Sequence

import msgspec

from perennial.protocol.append import appended_messages
from perennial.protocol.media import DEFAULT_CONTENT_TYPE, is_json, media_type
from perennial.protocol.messages import split_json
from perennial.protocol.rejections import (
    ConfigConflict,
    ContentTypeConflict,
    Malformed,
    NameTaken,
    OffsetTrimmed,
    Rejected,
    SourceGone,
    SourceMissing,
)
from perennial.protocol.state import Appended, Closed, Created, ForkOrigin, Inherited, Record, StreamState


class ForkRequest(msgspec.Struct, frozen=True):
    """The fork headers of a PUT. `offset` None stands for the source's tail."""

    bucket: str
    name: str
    offset: int | None = None
    sub_offset: int = 0


class Create(msgspec.Struct, frozen=True):
    """One PUT."""

    body: bytes = b""
    content_type: str | None = None
    ttl_seconds: int | None = None
    expires_at_ms: int | None = None
    closed: bool = False
    fork: ForkRequest | None = None


class Anchor(msgspec.Struct, frozen=True):
    """What stands at a fork offset in the source.

    `aligned`: the offset is a message boundary. `following`: the positions at which the messages of the
    append there end, those after the offset; empty at the tail.
    """

    aligned: bool
    following: Sequence[int]


class Exists(msgspec.Struct, frozen=True):
    """The same stream is there already: an idempotent success."""


CreateOutcome = list[Record] | Exists | Rejected


def decide_create(existing: StreamState | None, command: Create, new_id: int, now_ms: int) -> CreateOutcome:
    """For a plain stream, or for any command when the target exists."""
    if existing is not None:
        return _compare(existing, command)
    created = Created(
        id=new_id,
        content_type=command.content_type or DEFAULT_CONTENT_TYPE,
        at_ms=now_ms,
        ttl_seconds=command.ttl_seconds,
        expires_at_ms=command.expires_at_ms,
    )
    return _with_body(created, command, now_ms)


def decide_fork(
    source: StreamState | None, anchor: Anchor | None, command: Create, new_id: int, now_ms: int
) -> CreateOutcome:
    """For a fork onto a free name. `anchor` is None when the offset lies outside what the source retains."""
    fork = command.fork
    assert fork is not None, "callers come here with a fork request"
    if source is None:
        return SourceMissing()
    if source.soft_deleted:
        return SourceGone()
    if command.content_type and media_type(command.content_type) != media_type(source.content_type):
        return ContentTypeConflict(source.content_type, command.content_type)
    offset = source.tail if fork.offset is None else fork.offset
    if offset < source.earliest:
        return OffsetTrimmed(source.earliest)
    if offset > source.tail or anchor is None:
        return Malformed("Stream-Fork-Offset lies beyond the source's tail")
    end = _fork_end(source, offset, fork.sub_offset, anchor)
    if isinstance(end, Malformed):
        return end
    inherits_lifetime = command.ttl_seconds is None and command.expires_at_ms is None
    created = Created(
        id=new_id,
        content_type=command.content_type or source.content_type,
        at_ms=now_ms,
        ttl_seconds=source.ttl_seconds if inherits_lifetime else command.ttl_seconds,
        expires_at_ms=source.expires_at_ms if inherits_lifetime else command.expires_at_ms,
        origin=ForkOrigin(fork.bucket, fork.name, offset, fork.sub_offset),
        lineage=lineage_up_to(source, end),
        snapshot=source.snapshot,
    )
    return _with_body(created, command, now_ms)


def lineage_up_to(source: StreamState, end: int) -> tuple[Inherited, ...]:
    """Where the bytes before `end` of `source` are stored, flattened so that reads never walk a chain."""
    segments: list[Inherited] = []
    for segment in (*source.lineage, Inherited(source.id, source.tail)):
        if segment.end >= end:
            segments.append(Inherited(segment.id, end))
            break
        segments.append(segment)
    return tuple(segments)


def _fork_end(source: StreamState, offset: int, sub_offset: int, anchor: Anchor) -> int | Malformed:
    json = is_json(source.content_type)
    if json and not anchor.aligned:
        return Malformed("Stream-Fork-Offset is not a message boundary of the source")
    if sub_offset == 0:
        return offset
    following = anchor.following
    limit = len(following) if json else (following[-1] - offset if following else 0)
    if sub_offset > limit:
        return Malformed(f"Stream-Fork-Sub-Offset {sub_offset} passes the end of the append there ({limit})")
    return following[sub_offset - 1] if json else offset + sub_offset


def _with_body(created: Created, command: Create, now_ms: int) -> list[Record] | Malformed:
    records: list[Record] = [created]
    body = command.body
    if body and is_json(created.content_type):
        messages = split_json(body)
        if isinstance(messages, Malformed):
            return messages
        if messages:
            records.append(appended_messages(messages, now_ms, closes=command.closed))
    elif body:
        records.append(Appended(body, (len(body),), now_ms, closes=command.closed))
    if command.closed and len(records) == 1:
        records.append(Closed(now_ms))
    return records


def _compare(existing: StreamState, command: Create) -> Exists | ConfigConflict | NameTaken:
    if existing.soft_deleted:
        return NameTaken()
    difference = _difference(existing, command)
    return Exists() if difference is None else ConfigConflict(difference)


def _difference(existing: StreamState, command: Create) -> str | None:
    """The first setting in which a repeated PUT departs from the stream that is there."""
    fork, origin = command.fork, existing.origin
    if (fork is None) != (origin is None):
        return "Stream-Forked-From"
    if fork is not None and origin is not None:
        if (fork.bucket, fork.name) != (origin.bucket, origin.name):
            return "Stream-Forked-From"
        if fork.offset is not None and fork.offset != origin.offset:
            return "Stream-Fork-Offset"
        if fork.sub_offset != origin.sub_offset:
            return "Stream-Fork-Sub-Offset"
    content_type = command.content_type or (existing.content_type if fork else DEFAULT_CONTENT_TYPE)
    if media_type(content_type) != media_type(existing.content_type):
        return "Content-Type"
    lifetime_omitted = command.ttl_seconds is None and command.expires_at_ms is None
    if not (fork and lifetime_omitted):
        if command.ttl_seconds != existing.ttl_seconds:
            return "Stream-TTL"
        if command.expires_at_ms != existing.expires_at_ms:
            return "Stream-Expires-At"
    if command.closed != existing.closed:
        return "Stream-Closed"
    return None
