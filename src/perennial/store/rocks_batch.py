"""A RocksDB write batch in the making: one method per kind of row, one column family each."""

from collections.abc import Iterable
from typing import Any

import msgspec
from rocksdict import WriteBatch

from perennial.protocol.state import ProducerState
from perennial.store import keys
from perennial.store.interface import BucketRow, StreamRow
from perennial.store.keys import LAST, Garbage

_encode = msgspec.msgpack.Encoder().encode


class RocksBatch:
    """A write batch in the making; see `interface.Batch`."""

    __slots__ = ("_families", "raw")

    def __init__(self, families: dict[str, Any]) -> None:
        self._families = families
        self.raw = WriteBatch(raw_mode=True)

    def put_stream(self, key: bytes, row: StreamRow) -> None:
        self.raw.put(key, _encode(row), self._families["streams"])

    def remove_stream(self, key: bytes) -> None:
        self.raw.delete(key, self._families["streams"])

    def put_blocks(self, blocks: Iterable[tuple[int, int, bytes]]) -> None:
        # Where a row goes that does not say it; all others do. It saves 0.05 of 0.17 µs each.
        self.raw.set_default_column_family(self._families["blocks"])
        put, block_key = self.raw.put, keys.block_key
        for stream_id, offset, value in blocks:
            put(block_key(stream_id, offset), value)

    def put_producer(self, stream_id: int, producer_id: str, state: ProducerState) -> None:
        self.raw.put(keys.producer_key(stream_id, producer_id), _encode(state), self._families["producers"])

    def put_feed(self, bucket: str, position: int, value: bytes) -> None:
        self.raw.put(keys.feed_key(bucket, position), value, self._families["feed"])

    def put_deadline(self, deadline_ms: int, key: bytes) -> None:
        self.raw.put(keys.expiry_key(deadline_ms, key), b"", self._families["expiry"])

    def remove_deadline(self, deadline_ms: int, key: bytes) -> None:
        self.raw.delete(keys.expiry_key(deadline_ms, key), self._families["expiry"])

    def put_bucket(self, bucket: str, row: BucketRow) -> None:
        self.raw.put(bucket.encode(), _encode(row), self._families["buckets"])

    def clear_feed(self, bucket: str) -> None:
        self.raw.delete_range(keys.feed_key(bucket, 0), keys.feed_key(bucket, LAST), self._families["feed"])
        self.raw.delete_range(
            keys.grave_key(bucket, 0), keys.grave_key(bucket, LAST), self._families["graves"]
        )

    def put_next_id(self, number: int) -> None:
        self.raw.put(b"next_id", keys.number_key(number), self._families["meta"])

    def put_proxy(self, key: bytes, value: bytes) -> None:
        self.raw.put(key, value, self._families["proxy"])

    def remove_proxy(self, key: bytes) -> None:
        self.raw.delete(key, self._families["proxy"])

    def discard(self, stream_id: int) -> None:
        self.raw.put(Garbage.STREAM + keys.number_key(stream_id), b"", self._families["garbage"])

    def discard_blob(self, blob: int) -> None:
        self.raw.put(Garbage.BLOB + keys.number_key(blob), b"", self._families["garbage"])

    def discard_before(self, stream_id: int, offset: int) -> None:
        key = Garbage.TRIM + keys.number_key(stream_id)
        self.raw.put(key, keys.number_key(offset), self._families["garbage"])

    def put_grave(self, bucket: str, stream_id: int, offset: int) -> None:
        self.raw.put(keys.grave_key(bucket, stream_id), keys.number_key(offset), self._families["graves"])

    def remove_grave(self, bucket: str, stream_id: int) -> None:
        self.raw.delete(keys.grave_key(bucket, stream_id), self._families["graves"])

    def replace_feed(self, bucket: str, first: int, last: int, value: bytes | None) -> None:
        family = self._families["feed"]
        self.raw.delete_range(keys.feed_key(bucket, first), keys.feed_key(bucket, last + 1), family)
        if value is not None:
            self.put_feed(bucket, first, value)

    def mark_feed_sealed(self, bucket: str, position: int) -> None:
        self.raw.put(b"feed_sealed:" + bucket.encode(), keys.number_key(position), self._families["meta"])

    def begin_blob(self, blob: int) -> None:
        self.raw.put(keys.number_key(blob), b"", self._families["uploads"])

    def put_piece(self, blob: int, index: int, data: bytes) -> None:
        self.raw.put(keys.block_key(blob, index), data, self._families["blobs"])

    def keep_blob(self, blob: int) -> None:
        self.raw.delete(keys.number_key(blob), self._families["uploads"])

    def put_sealed(self, stream_id: int, start: int, end: int, value: bytes) -> None:
        family = self._families["blocks"]
        self.raw.delete_range(keys.block_key(stream_id, start), keys.block_key(stream_id, end), family)
        self.raw.put(keys.block_key(stream_id, start), value, family)
        self.mark_sealed(stream_id, end)

    def mark_sealed(self, stream_id: int, end: int) -> None:
        self.raw.put(keys.number_key(stream_id), keys.number_key(end), self._families["sealed"])
