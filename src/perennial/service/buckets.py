"""Buckets: the namespaces streams live in. `default` and `proxy` are always there."""

import msgspec

from perennial.protocol.names import DEFAULT_BUCKET, PROXY_BUCKET
from perennial.protocol.rejections import BucketExists, BucketMissing, BucketNotEmpty, BuiltInBucket, Rejected
from perennial.store.interface import Batch, BucketRow, Store

BUILT_IN = (DEFAULT_BUCKET, PROXY_BUCKET)


class Buckets:
    """Rows by bucket id; counts and positions move with the commits that change them."""

    def __init__(self, store: Store, now_ms: int) -> None:
        self._store = store
        self._rows: dict[str, BucketRow] = {}
        self._dirty: set[str] = set()
        self._durable: dict[str, int] = {}
        self._now_ms = now_ms
        self._add_built_in()

    def get(self, bucket: str) -> BucketRow | None:
        row = self._row(bucket)
        return None if row is None or row.deleted else row

    # Changes: the caller sees to it that a commit takes them along

    def create(self, bucket: str, now_ms: int) -> Rejected | None:
        if bucket in BUILT_IN:
            return BuiltInBucket()
        if self.get(bucket) is not None:
            return BucketExists()
        former = self._row(bucket)
        self._put(bucket, BucketRow(created_ms=now_ms, position=1 if former is None else former.position))
        return None

    def delete(self, bucket: str) -> Rejected | None:
        row = self.get(bucket)
        if row is None:
            return BucketMissing()
        if bucket in BUILT_IN:
            return BuiltInBucket()
        if row.streams or row.hidden:
            return BucketNotEmpty()
        self._put(bucket, msgspec.structs.replace(row, deleted=True))
        return None

    def count(self, bucket: str, streams: int = 0, hidden: int = 0, size: int = 0) -> None:
        """A commit in the making adds or removes streams of this bucket, or data other than appends."""
        row = self._existing(bucket)
        self._put(
            bucket,
            msgspec.structs.replace(
                row,
                streams=row.streams + streams,
                hidden=row.hidden + hidden,
                bytes=max(0, row.bytes + size),
            ),
        )

    def next_position(self, bucket: str) -> int:
        return self._existing(bucket).position

    def durable_position(self, bucket: str) -> int:
        """The next feed position as far as readers may know: below it everything is durable."""
        return self._durable.get(bucket) or self._existing(bucket).position

    def became_durable(self, bucket: str, position: int) -> None:
        self._durable[bucket] = position

    def advance(self, bucket: str, position: int, size: int) -> None:
        """A commit in the making appends this many bytes, up to this position."""
        row = self._existing(bucket)
        self._durable.setdefault(bucket, row.position)
        self._put(bucket, msgspec.structs.replace(row, position=position, bytes=row.bytes + size))

    def write_changes(self, batch: Batch) -> None:
        for bucket in self._dirty:
            batch.put_bucket(bucket, self._rows[bucket])
        self._dirty.clear()

    def forget_changes(self) -> None:
        """A commit failed: what the store holds is the truth again."""
        self._rows.clear()
        self._dirty.clear()
        self._add_built_in()

    def _add_built_in(self) -> None:
        for bucket in BUILT_IN:
            if self.get(bucket) is None:
                self._put(bucket, BucketRow(created_ms=self._now_ms))

    def _existing(self, bucket: str) -> BucketRow:
        row = self._row(bucket)
        assert row is not None, "streams are only created in buckets that exist"
        return row

    def _row(self, bucket: str) -> BucketRow | None:
        row = self._rows.get(bucket)
        if row is None:
            row = self._store.bucket(bucket)
            if row is not None:
                self._rows[bucket] = row
        return row

    def _put(self, bucket: str, row: BucketRow) -> None:
        self._rows[bucket] = row
        self._dirty.add(bucket)
