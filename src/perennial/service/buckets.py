"""Buckets: the namespaces streams live in. `default` and `proxy` are always there."""

import msgspec

from perennial.protocol.names import DEFAULT_BUCKET, PROXY_BUCKET
from perennial.store.interface import Batch, BucketRow, Store

BUILT_IN = (DEFAULT_BUCKET, PROXY_BUCKET)


class Buckets:
    """Rows by bucket id; the counts move with the commits that create and remove streams."""

    def __init__(self, store: Store, now_ms: int) -> None:
        self._store = store
        self._rows: dict[str, BucketRow] = {}
        self._dirty: set[str] = set()
        for bucket in BUILT_IN:
            if self.get(bucket) is None:
                self._put(bucket, BucketRow(created_ms=now_ms))

    def get(self, bucket: str) -> BucketRow | None:
        row = self._rows.get(bucket)
        if row is None:
            row = self._store.bucket(bucket)
            if row is not None:
                self._rows[bucket] = row
        return row

    def count(self, bucket: str, streams: int = 0, hidden: int = 0) -> None:
        """A commit in the making adds or removes streams of this bucket."""
        row = self.get(bucket)
        assert row is not None, "streams are only created in buckets that exist"
        self._put(
            bucket, msgspec.structs.replace(row, streams=row.streams + streams, hidden=row.hidden + hidden)
        )

    def write_changes(self, batch: Batch) -> None:
        for bucket in self._dirty:
            batch.put_bucket(bucket, self._rows[bucket])
        self._dirty.clear()

    def forget_changes(self) -> None:
        """A commit failed: what the store holds is the truth again."""
        self._rows.clear()
        self._dirty.clear()

    def _put(self, bucket: str, row: BucketRow) -> None:
        self._rows[bucket] = row
        self._dirty.add(bucket)
