"""Listing a bucket: a page costs the page, not the bucket."""

from typing import Any

import msgspec

from perennial.protocol.state import StreamState
from perennial.service.streams import StreamService
from perennial.store.keys import stream_key


class Listed(msgspec.Struct, frozen=True, omit_defaults=True):
    stream_id: str
    status: str
    content_type: str
    tail_offset: int
    created_at_ms: int
    last_write_at_ms: int
    # Of a fork: what it shows of its source, and what no feed row of its own tells of.
    inherited_bytes: int = 0


class Page(msgspec.Struct, frozen=True):
    bucket_id: str
    prefix: str
    stream_count: int
    streams: list[Listed]
    next_cursor: str | None
    has_more: bool


def list_streams(service: StreamService, bucket: str, prefix: str, after: str, limit: int) -> Page:
    """Streams in the order of their names, those after the cursor `after`."""
    found: list[Listed] = []
    has_more = False
    for name, row in service.store.streams(bucket, prefix, after):
        # What the store holds may be a moment ahead of what is durable; a handle in memory knows.
        handle = service.handles.peek(stream_key(bucket, name))
        state = row.state if handle is None else handle.visible
        deadline_ms = row.deadline_ms if handle is None else handle.deadline_ms
        if state is None or state.soft_deleted:
            continue
        if deadline_ms is not None and deadline_ms <= service.lifetimes.now_for(state):
            continue
        if len(found) == limit:
            has_more = True
            break
        found.append(_listed(name, state))
    cursor = found[-1].stream_id if has_more else None
    return Page(bucket, prefix, len(found), found, cursor, has_more)


def _listed(name: str, state: StreamState) -> Listed:
    return Listed(
        stream_id=name,
        status="Closed" if state.closed else "Open",
        content_type=state.content_type,
        tail_offset=state.tail,
        created_at_ms=state.created_ms,
        last_write_at_ms=state.last_write_ms,
        inherited_bytes=state.base,
    )


def encode_page(page: Page) -> bytes:
    return msgspec.json.encode(page)


def describe_bucket(service: StreamService, bucket: str) -> dict[str, Any] | None:
    row = service.buckets.get(bucket)
    if row is None:
        return None
    return {"bucket_id": bucket, "streams": row.streams, "created_at_ms": row.created_ms}
