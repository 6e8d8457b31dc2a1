"""Graves: feed entries of deleted streams and trimmed ranges, which readers of the feed no longer see.

The feed log holds its own copy of small payloads. A grave says from which offset on a stream's entries
still count; it is dug in the commit that deletes or trims, and kept until the log has been rewritten.
"""

from collections import Counter
from typing import Final

from perennial.store.interface import Batch, Store

ALL_OF_IT: Final = (1 << 63) - 1


class Graves:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_bucket: dict[str, dict[int, int]] = {}
        # What has died since the start or the last clean-up, to tell when another is worth it.
        self.dead_bytes: Counter[str] = Counter()

    def of(self, bucket: str) -> dict[int, int]:
        """Stream ids and the offsets before which their entries are dead."""
        graves = self._by_bucket.get(bucket)
        if graves is None:
            graves = self._by_bucket[bucket] = self._store.graves(bucket)
        return graves

    def dig(self, batch: Batch, bucket: str, stream_id: int, size: int, offset: int = ALL_OF_IT) -> None:
        self.dead_bytes[bucket] += size
        self.of(bucket)[stream_id] = offset
        batch.put_grave(bucket, stream_id, offset)

    def forget_changes(self) -> None:
        self._by_bucket.clear()
