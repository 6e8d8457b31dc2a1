"""The bucket feed: everything committed to a bucket, in commit order, one row per message.

Positions count the rows of a bucket without holes. A row that a trim or a delete has taken away leaves a
hole behind: that is how a consumer can tell that it missed something.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np

from perennial.service.buckets import Buckets
from perennial.service.graves import Graves
from perennial.store.feedlog import CLOSES, POINTER, FeedBlock, Numbers, StreamTable, join
from perennial.store.interface import Store

END_OF_TIME: Final = (1 << 63) - 1
# What a row costs beside its payload, when the size of a page is reckoned.
ROW_BYTES: Final = 64
STEP_BYTES: Final = 1 << 20
# A filter that matches little makes a page a long search; past this many stored bytes it ends all the same.
SEARCHED_BYTES: Final = 256 << 20


class Rows:
    """Messages by column. `payload` holds the messages of all rows, one after another.

    `streams` refers to `table`. `keep` marks the rows that count; None: every one.
    """

    __slots__ = (
        "closed",
        "is_data",
        "keep",
        "lengths",
        "next_offsets",
        "offsets",
        "payload",
        "positions",
        "streams",
        "table",
        "times",
    )

    positions: Numbers
    offsets: Numbers
    next_offsets: Numbers
    times: Numbers
    closed: Numbers
    is_data: Numbers
    lengths: Numbers
    streams: Numbers
    payload: Numbers
    keep: Numbers | None
    table: StreamTable


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
            block = join(blocks)
            rows = expand(block)
            is_whole = self._select(rows)
            if (block.kinds & POINTER).any():
                rows = self._with_payloads(block, rows)
            yield rows
            searched += size
            if not is_whole or searched >= SEARCHED_BYTES:
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

    def _select(self, rows: Rows) -> bool:
        """Say which rows count; False if the page ends among them."""
        positions = rows.positions
        keep = None
        if positions[0] <= self._after or positions[-1] > self._until:
            keep = (positions > self._after) & (positions <= self._until)
        limits = rows.table.limits(self._graves)
        if limits is not None:
            keep = _both(keep, rows.offsets >= limits[rows.streams])
        if not self._wanted.wants_all:
            names = np.array([self._wanted.wants(name) for name in rows.table.each_name()], bool)
            keep = _both(keep, names[rows.streams])
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
                payload = self._fetch(int(block.table.ids[block.streams[entry]]), start, stop)
                if payload is None:
                    kept[row:end] = False  # trimmed or deleted since the page was begun
                else:
                    pieces.append(payload)
            row = end
        found = Rows()
        for name in Rows.__slots__:
            if name not in ("payload", "keep", "table"):
                setattr(found, name, getattr(rows, name)[kept])
        found.payload = np.concatenate(pieces) if pieces else np.empty(0, "u1")
        found.keep, found.table = None, rows.table
        return found

    def _fetch(self, stream_id: int, start: int, stop: int) -> Numbers | None:
        data = b"".join([block.cut(start, stop) for block in self._store.blocks(stream_id, start, stop)])
        return np.frombuffer(data, "u1") if len(data) == stop - start else None


def expand(block: FeedBlock) -> Rows:
    """Entries become rows: one per message, and one for a close without data."""
    rows = Rows()
    rows.payload, rows.table, rows.keep = block.payload, block.table, None
    closes = (block.kinds & CLOSES) > 0
    if (block.counts == 1).all():
        # Nearly always; then entries are rows, and nothing needs to be computed.
        rows.positions = block.positions.view("<i8")
        rows.offsets = block.offsets.view("<i8")
        rows.times = block.times.view("<i8")
        rows.lengths = block.lengths.astype(np.int64)
        rows.streams = block.streams
        rows.closed = closes
        rows.is_data = np.ones(len(block.positions), bool)
    else:
        counts = block.counts.astype(np.int64)
        rows_of = np.maximum(counts, 1)
        entries = np.repeat(np.arange(len(counts)), rows_of)
        first_row = np.cumsum(rows_of) - rows_of
        index = np.arange(len(entries)) - first_row[entries]
        rows.is_data = counts[entries] > 0
        rows.lengths = np.zeros(len(entries), np.int64)
        rows.lengths[rows.is_data] = block.lengths
        starts = np.cumsum(rows.lengths) - rows.lengths
        rows.positions = block.positions.view("<i8")[entries] + index
        rows.offsets = block.offsets.view("<i8")[entries] + starts - starts[first_row][entries]
        rows.times = block.times.view("<i8")[entries]
        rows.closed = closes[entries] & (index == rows_of[entries] - 1)
        rows.streams = block.streams[entries]
    rows.next_offsets = rows.offsets + rows.lengths
    return rows


def _both(keep: Numbers | None, more: Numbers) -> Numbers:
    return more if keep is None else keep & more
