"""Quotas: how many streams and bytes a bucket may keep.

Counts move with commits, so what is still on its way to the disk is not in them yet: a bucket may end up
over its bytes by what one commit holds, never by more.
"""

from collections.abc import Mapping

import msgspec

from perennial.protocol.rejections import QuotaExceeded
from perennial.protocol.state import StreamState
from perennial.service.buckets import Buckets


class Quota(msgspec.Struct, frozen=True):
    """0 is no limit."""

    streams: int = 0
    bytes: int = 0


class Quotas:
    def __init__(self, buckets: Buckets, default: Quota, by_bucket: Mapping[str, Quota]) -> None:
        self._buckets = buckets
        self._default = default
        self._by_bucket = by_bucket

    def refuse(self, bucket: str, size: int, streams: int = 0) -> QuotaExceeded | None:
        """Is there no room for this much more? Growth by nothing, or by less than nothing, always fits."""
        quota = self._by_bucket.get(bucket, self._default)
        row = self._buckets.get(bucket)
        if row is None:
            return None
        if quota.streams and streams and row.streams + streams > quota.streams:
            return QuotaExceeded(f"bucket {bucket!r} has {row.streams} streams; its quota is {quota.streams}")
        if quota.bytes and size > 0 and row.bytes + size > quota.bytes:
            return QuotaExceeded(f"bucket {bucket!r} holds {row.bytes} bytes; its quota is {quota.bytes}")
        return None


def kept_bytes(state: StreamState | None) -> int:
    """What a stream counts for: its own retained data, the snapshot it owns, and what it keeps for forks."""
    if state is None:
        return 0
    snapshot = state.snapshot
    own_snapshot = snapshot.size if snapshot is not None and snapshot.owner == state.id else 0
    retained = max(0, state.tail - max(state.base, state.earliest))
    return retained + own_snapshot + state.kept_for_forks
