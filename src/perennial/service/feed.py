"""The bucket feed: everything committed to a bucket, in commit order, one row per message.

Positions count the rows of a bucket without holes. A row that a trim or a delete has taken away leaves a
hole behind: that is how a consumer can tell that it missed something.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np

from perennial.service.buckets import Buckets
from perennial.service.feed_rows import Rows, expand, slices
from perennial.service.graves import Graves
from perennial.store.feedlog import POINTER, FeedBlock, Numbers, StreamTable, join
from perennial.store.interface import Store

END_OF_TIME: Final = (1 << 63) - 1
# What a row costs beside its payload, when the size of a page is reckoned.
ROW_BYTES: Final = 64
STEP_BYTES: Final = 1 << 20
# A filter that matches little makes a page a long search; past this many stored bytes it ends all the same.
SEARCHED_BYTES: Final = 256 << 20


class StreamFilter:
    """Which streams a reader wants: one by name, or all with a prefix; by default every one."""

    def __init__(self, exact: str | None = None, prefix: str | None = None) -> None:
        self._exact = None if exact is None else exact.encode()
        self._prefix = None if prefix is None else prefix.encode()

    @property
    def wants_all(self) -> bool:
        return self._exact is None and self._prefix is None

    def wants(self, name: bytes) -> bool:
        if self._exact is not None and name != self._exact:
            return False
        return self._prefix is None or name.startswith(self._prefix)


class Feed:
    def __init__(self, store: Store, buckets: Buckets, graves: Graves) -> None:
        self._store = store
        self._buckets = buckets
        self._graves = graves
        self._watchers: dict[str, set[Callable[[], None]]] = {}
        # Told of every bucket whose feed grew; merging of feed values hooks in here.
        self.on_growth: Callable[[str], None] = lambda bucket: None

    def head(self, bucket: str) -> int:
        """The newest durable position; 0 when there is none."""
        return self._buckets.durable_position(bucket) - 1

    def earliest(self, bucket: str) -> int:
        """The position at which the stored feed begins; the next one to come when there is nothing."""
        first = next(self._store.feed(bucket, 0), None)
        return self.head(bucket) + 1 if first is None else first[0]

    def watch(self, bucket: str, changed: Callable[[], None]) -> Callable[[], None]:
        """`changed` is called on growth until the returned function is."""
        watchers = self._watchers.setdefault(bucket, set())
        watchers.add(changed)
        return lambda: watchers.discard(changed)

    def grew(self, bucket: str, position: int) -> None:
        self._buckets.became_durable(bucket, position)
        self.on_growth(bucket)
        for changed in tuple(self._watchers.get(bucket, ())):
            changed()

    def page(self, bucket: str, after: int, until: int, wanted: StreamFilter, limit: int) -> "FeedPage":
        """Rows with after < position <= until, about `limit` bytes of them."""
        until = max(after, min(until, self.head(bucket)))
        # As they are now: closed graves have been carried out in the log, but not in what is read already.
        graves = dict(self._graves.of(bucket))
        return FeedPage(self._store, bucket, after, until, wanted, limit, graves)


class FeedPage:
    """A page of a feed in the making: iterate, and then see `next_position`."""

    def __init__(
        self,
        store: Store,
        bucket: str,
        after: int,
        until: int,
        wanted: StreamFilter,
        limit: int,
        graves: Mapping[int, int],
    ) -> None:
        self._store = store
        self._bucket = bucket
        self._after = after
        self._until = until
        self._wanted = wanted
        self._left = limit
        self._graves = graves
        self._is_empty = True
        self.next_position = after

    def __iter__(self) -> Iterator[Rows]:
        """In steps of about a mebibyte, however small the stored values are."""
        searched = 0
        for blocks, size in self._runs():
            joined = join(blocks)
            choice = _Choice(joined.table, self._wanted, self._graves)
            for block in slices(joined, self._after, self._until, STEP_BYTES):
                rows = expand(block)
                is_whole = self._select(rows, choice)
                if (block.kinds & POINTER).any():
                    rows = self._with_payloads(block, rows)
                yield rows
                if not is_whole:
                    return
            searched += size
            if searched >= SEARCHED_BYTES:
                return
        self.next_position = self._until

    def _runs(self) -> Iterator[tuple[list[FeedBlock], int]]:
        """Stored values that are worth a step together, and their size."""
        blocks: list[FeedBlock] = []
        size = 0
        for first, value in self._store.feed(self._bucket, self._after + 1):
            if first > self._until:
                break
            blocks.append(FeedBlock(value))
            size += len(value)
            if size >= min(STEP_BYTES, self._left):
                yield blocks, size
                blocks, size = [], 0
        if blocks:
            yield blocks, size

    def _select(self, rows: Rows, choice: "_Choice") -> bool:
        """Say which rows count; False if the page ends among them."""
        positions = rows.positions
        keep = None
        if positions[0] <= self._after or positions[-1] > self._until:
            keep = (positions > self._after) & (positions <= self._until)
        if choice.limits is not None:
            keep = _both(keep, rows.offsets >= choice.limits[rows.streams])
        if choice.wanted is not None:
            keep = _both(keep, choice.wanted[rows.streams])
        last = int(positions[-1])
        costs = rows.lengths + ROW_BYTES if keep is None else (rows.lengths + ROW_BYTES) * keep
        total = int(costs.sum())
        if total > self._left:
            spent = np.cumsum(costs)
            fits = int(np.searchsorted(spent, self._left, "right"))
            if self._is_empty and (fits == 0 or spent[fits - 1] == 0):
                fits += 1  # a page has a row, however large
            if fits < len(positions):
                keep = _both(keep, np.arange(len(positions)) < fits)
                last = int(positions[fits]) - 1
        rows.keep = keep
        self._left -= total
        self._is_empty = self._is_empty and total == 0
        self.next_position = min(last, self._until)
        return self._left > 0

    def _with_payloads(self, block: FeedBlock, rows: Rows) -> Rows:
        """The rows that count, with large payloads brought in from where the feed points at."""
        kept = np.ones(len(rows.positions), bool) if rows.keep is None else rows.keep.copy()
        ends = np.cumsum(np.maximum(block.counts, 1))
        pieces: list[Numbers] = []
        at = row = 0
        for entry, end in enumerate(ends.tolist()):
            lengths = rows.lengths[row:end]
            wanted = kept[row:end]
            if not block.kinds[entry] & POINTER:
                size = int(lengths.sum())
                pieces.append(block.payload[at : at + size][np.repeat(wanted, lengths)])
                at += size
            elif wanted.any():
                # Rows of one entry are wanted from some row to some row: graves and pages cut at the ends.
                first, last = row + int(wanted.argmax()), end - int(wanted[::-1].argmax())
                start, stop = int(rows.offsets[first]), int(rows.next_offsets[last - 1])
                fetched = self._fetch(int(block.table.ids[block.streams[entry]]), start, stop)
                if sum(map(len, fetched)) == stop - start:
                    pieces += fetched
                else:
                    kept[row:end] = False  # trimmed or deleted since the page was begun
            row = end
        found = Rows()
        for name in Rows.__slots__:
            if name not in ("payload", "keep", "table"):
                setattr(found, name, getattr(rows, name)[kept])
        found.payload = np.concatenate(pieces) if pieces else np.empty(0, "u1")
        found.keep, found.table = None, rows.table
        return found

    def _fetch(self, stream_id: int, start: int, stop: int) -> list[Numbers]:
        blocks = self._store.blocks(stream_id, start, stop)
        return [np.frombuffer(block.cut(start, stop), "u1") for block in blocks]


class _Choice:
    """Which streams of a table are wanted, and from which offset on they are alive; None: all of them."""

    def __init__(self, table: StreamTable, wanted: StreamFilter, graves: Mapping[int, int]) -> None:
        self.limits = table.limits(graves)
        self.wanted: Numbers | None = None
        if not wanted.wants_all:
            self.wanted = np.array([wanted.wants(name) for name in table.each_name()], bool)


def _both(keep: Numbers | None, more: Numbers) -> Numbers:
    return more if keep is None else keep & more
