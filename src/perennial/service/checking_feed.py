"""The part of `checking` that compares the feed with the streams, by counting what both hold."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from perennial.store import keys
from perennial.store.blocks import Block
from perennial.store.errors import StoreCorrupt
from perennial.store.feedlog import FeedBlock
from perennial.store.interface import BucketRow
from perennial.store.rocks import RocksStore

END: Final = (1 << 63) - 1


class FeedTally:
    """Messages and bytes by stream, from its retained own data on: as stored, and as the feed tells."""

    def __init__(self, begins: Mapping[int, int]) -> None:
        self._begins = begins
        self._stored: Counter[tuple[int, str]] = Counter()
        self._told: Counter[tuple[int, str]] = Counter()

    def stored(self, stream_id: int, block: Block) -> None:
        begin = self._begins.get(stream_id)
        if begin is None or block.end <= begin:
            return
        first, last = block.message_range(begin, block.end)
        if first < last:
            ends = block.ends
            self._stored[stream_id, "messages"] += last - first
            self._stored[stream_id, "bytes"] += ends[last - 1] - (ends[first - 1] if first else 0)

    def told(self, value: FeedBlock) -> int:
        """Takes in a value of the feed; returns the number of its messages."""
        counts = value.counts.astype(np.int64)
        lengths = value.lengths.astype(np.int64)
        entry = np.repeat(np.arange(len(counts)), counts)
        starts = np.cumsum(lengths) - lengths
        # Where the entry's first message begins among all messages of the value.
        first = np.concatenate(([0], np.cumsum(lengths)))[np.cumsum(counts) - counts]
        offsets = value.offsets.astype(np.int64)[entry] + starts - first[entry]
        streams = value.streams[entry]
        ids = value.table.ids.tolist()
        begins = np.array([self._begins.get(stream_id, END) for stream_id in ids], np.int64)
        shown = offsets >= begins[streams]
        messages = np.bincount(streams[shown], minlength=len(ids))
        sizes = np.bincount(streams[shown], lengths[shown], len(ids))
        for index, stream_id in enumerate(ids):
            if messages[index]:
                self._told[stream_id, "messages"] += int(messages[index])
                self._told[stream_id, "bytes"] += int(sizes[index])
        return len(lengths)

    def compare(self, names: Mapping[int, str], complain: Callable[[str], None]) -> None:
        for stream_id, what in sorted(self._stored.keys() | self._told.keys()):
            stored, told = self._stored[stream_id, what], self._told[stream_id, what]
            if stored != told:
                name = names.get(stream_id, str(stream_id))
                complain(f"stream {name}: holds {stored} {what}, and the feed tells of {told}")


def check_feeds(
    store: RocksStore, tally: FeedTally, names: Mapping[int, str], complain: Callable[[str], None]
) -> int:
    """Returns the number of messages that the feeds hold."""
    total = 0
    nexts: dict[str, int] = {}
    for key, content in store.rows("feed"):
        bucket, first = key[:-9].decode("utf-8", "replace"), keys.parse_number(key[-8:])
        where = f"bucket {bucket}: feed value at position {first}"
        try:
            value = FeedBlock(content)
            total += tally.told(value)
        except (StoreCorrupt, ValueError, IndexError) as error:
            complain(f"{where}: cannot be read: {error}")
            continue
        positions = value.positions.astype(np.int64)
        ends = positions + np.maximum(value.counts.astype(np.int64), 1)
        if len(positions) and int(positions[0]) < first:
            complain(f"{where}: begins before its key says")
        if first < nexts.get(bucket, 0):
            complain(f"{where}: begins before the value before it ends")
        if bool(np.any(positions[1:] < ends[:-1])):
            complain(f"{where}: its positions do not go up")
        nexts[bucket] = int(ends[-1]) if len(ends) else first
    for bucket, position in nexts.items():
        row = store.bucket(bucket)
        if row is None or position > row.position:
            complain(
                f"bucket {bucket}: the feed reaches {position - 1}, beyond what was given out ({_next(row)})"
            )
    tally.compare(names, complain)
    return total


def _next(row: BucketRow | None) -> str:
    return "nothing" if row is None else str(row.position - 1)
