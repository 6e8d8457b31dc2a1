"""Feed sealing: the feed values of many small commits become one large value, and dead entries go.

A feed is read value by value, so a bucket that takes one message per commit would cost its readers a look-up
per message. Merging also carries out what graves announce: entries of deleted streams and trimmed ranges are
left out, and a bucket with many graves is gone through from its beginning, after which they are closed.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from perennial.service.buckets import Buckets
from perennial.service.feed import Feed
from perennial.service.graves import Graves
from perennial.store.feedlog import FeedBlock, merge
from perennial.store.interface import Store

VALUE_BYTES: Final = 1 << 20
# A busy bucket's commits are large by themselves; rewriting them took 6% of the time under load.
LARGE_VALUE_BYTES: Final = 32 << 10
# Nor is it worth it to merge the few small ones between two of them.
FEW_VALUES: Final = 8
VALUES_PER_STEP: Final = 16
# How many values may gather at the end of a feed before they are looked at.
UNSEALED_VALUES: Final = 256
# And how many may wait there while requests want all of the loop's time.
PATIENT_VALUES: Final = 16 * UNSEALED_VALUES
# Going through a whole feed is worth it when this much of it may be dead.
MANY_GRAVES: Final = 1000
MUCH_DEAD_BYTES: Final = 64 << 20


class FeedSealer:
    def __init__(self, store: Store, buckets: Buckets, feed: Feed, graves: Graves) -> None:
        self._store = store
        self._buckets = buckets
        self._feed = feed
        self._graves = graves
        self._unsealed: dict[str, int] = {}
        self._waiting: dict[str, None] = {}
        self._pass: _Pass | None = None

    def grew(self, bucket: str) -> None:
        count = self._unsealed.get(bucket, 0) + 1
        self._unsealed[bucket] = count
        if count >= UNSEALED_VALUES or self._much_is_dead(bucket):
            self._waiting[bucket] = None

    def step(self, pressed: bool = False) -> bool:
        """A millisecond of work; False when there was nothing to do, or, if requests press, to do now."""
        if self._pass is None:
            bucket = next((each for each in self._waiting if not pressed or self._cannot_wait(each)), None)
            if bucket is None:
                return False
            del self._waiting[bucket]
            self._unsealed[bucket] = 0
            self._pass = self._begin(bucket)
        elif self._born(self._pass.bucket) != self._pass.born or self._pass.step():
            # Done, or the bucket was deleted meanwhile: its feed must not come back.
            self._pass = None
        return True

    def _cannot_wait(self, bucket: str) -> bool:
        return self._unsealed[bucket] >= PATIENT_VALUES or self._much_is_dead(bucket)

    def _born(self, bucket: str) -> int | None:
        """Tells a bucket from a later one of the same name."""
        row = self._buckets.get(bucket)
        return None if row is None else row.created_ms

    def _begin(self, bucket: str) -> "_Pass":
        thorough = self._much_is_dead(bucket)
        if thorough:
            self._graves.dead_bytes[bucket] = 0
        start = 0 if thorough else self._store.feed_sealed_until(bucket)
        begun = _Pass(self._store, self._graves, bucket, start, self._feed.head(bucket), thorough)
        begun.born = self._born(bucket)
        return begun

    def _much_is_dead(self, bucket: str) -> bool:
        graves = self._graves
        return len(graves.of(bucket)) >= MANY_GRAVES or graves.dead_bytes[bucket] >= MUCH_DEAD_BYTES


class _Pass:
    """One walk along a bucket's feed, from `start` to what was its head when the walk began."""

    def __init__(
        self, store: Store, graves: Graves, bucket: str, start: int, head: int, thorough: bool
    ) -> None:
        self._store = store
        self._graves = graves
        self.bucket = bucket
        self.born: int | None = None
        self._head = head
        self._closing = dict(graves.of(bucket)) if thorough else {}
        self._source = self._values(start)
        self._run: list[tuple[int, FeedBlock]] = []
        self._run_bytes = 0

    def step(self) -> bool:
        taken = 0
        for first, value in islice(self._source, VALUES_PER_STEP):
            taken += 1
            large = len(value) >= LARGE_VALUE_BYTES and not self._closing
            if large and len(self._run) < FEW_VALUES:
                self._run, self._run_bytes = [], 0
            elif self._run and (large or self._run_bytes + len(value) > VALUE_BYTES):
                self._write_run()
            if not large:
                self._run.append((first, FeedBlock(value)))
                self._run_bytes += len(value)
        if taken == VALUES_PER_STEP:
            return False
        if self._closing:
            self._write_run()
            self._close_graves()
        # What is left is short of a full value: the next pass begins there.
        batch = self._store.batch()
        batch.mark_feed_sealed(self.bucket, self._run[0][0] if self._run else self._head + 1)
        self._store.write(batch)
        return True

    def _values(self, start: int) -> Iterator[tuple[int, bytes]]:
        for first, value in self._store.feed(self.bucket, start):
            if first > self._head:
                return
            yield first, value

    def _write_run(self) -> None:
        run, self._run, self._run_bytes = self._run, [], 0
        if not run:
            return
        graves = self._graves.of(self.bucket)
        blocks = [block for _, block in run]
        is_dead = any(block.table.limits(graves) is not None for block in blocks)
        first, last = run[0][0], run[-1][0]
        batch = self._store.batch()
        if len(run) > 1 or is_dead:
            batch.replace_feed(self.bucket, first, last, merge(blocks, graves))
        # No sync: if a crash undoes this, the values are there as they were.
        self._store.write(batch)

    def _close_graves(self) -> None:
        """Every value that could hold these streams' dead entries has been rewritten."""
        batch = self._store.batch()
        graves = self._graves.of(self.bucket)
        for stream_id, offset in self._closing.items():
            if graves.get(stream_id) == offset:
                del graves[stream_id]
                batch.remove_grave(self.bucket, stream_id)
        self._store.write(batch)
