"""Is a store whole? Reads every row of it and compares what they say of each other.

What is looked at: checksums (every stored byte is read), that rows can be decoded, that each stream's data
is there from its beginning to its tail, that forks and their sources know each other, that snapshots are
complete, that buckets count right, that the feed's positions only go up and that it holds what the streams
hold, and that nothing is stored which belongs to nobody. Nothing is changed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from perennial.protocol.state import Inherited, ProducerState, StreamState
from perennial.service.checking_feed import FeedTally, check_feeds
from perennial.service.quotas import kept_bytes
from perennial.store import keys
from perennial.store.blocks import Block
from perennial.store.errors import StoreCorrupt, StoreError
from perennial.store.interface import BucketRow, StreamRow
from perennial.store.rocks import FORMAT, FORMER_FORMATS, RocksStore

MOST_PROBLEMS: Final = 1000


class Report(msgspec.Struct):
    """What was found. `problems` name the stream, bucket or file they are in."""

    streams: int = 0
    buckets: int = 0
    messages: int = 0
    bytes: int = 0
    producers: int = 0
    snapshots: int = 0
    feed_messages: int = 0
    changes: int = 0
    problems: list[str] = msgspec.field(default_factory=list)

    def add(self, problem: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)
        elif len(self.problems) == MOST_PROBLEMS:
            self.problems.append("… and more")


class Checker:
    def __init__(self, store: RocksStore) -> None:
        self._store = store
        self.report = Report(changes=store.last_change())
        self._streams: dict[bytes, StreamRow] = {}
        self._names: dict[int, str] = {}
        # Ids of streams and blobs whose remains are on the list of things to remove, or still coming in.
        self._doomed: set[int] = set()
        self._data_unreadable = False

    def run(self, progress: Callable[[str], None] = lambda step: None) -> Report:
        steps: list[tuple[str, Callable[[], None]]] = [
            ("format", self._check_format),
            ("garbage", self._load_doomed),
            ("streams", self._load_streams),
            ("forks", self._check_forks),
            ("data", self._check_data),
            ("producers", self._check_producers),
            ("snapshots", self._check_blobs),
            ("expiry", self._check_deadlines),
            ("buckets", self._check_buckets),
            ("feed", self._check_feed),
            ("the rest", self._read_the_rest),
        ]
        for name, step in steps:
            if name == "feed" and self._data_unreadable:
                continue  # every comparison would fail, and hide what is really wrong
            progress(name)
            try:
                step()
            except StoreError as error:
                # RocksDB names the damaged file; what else lies in it cannot be told.
                self.report.add(f"{name}: {error}")
                self._data_unreadable |= name == "data"
        return self.report

    def _check_format(self) -> None:
        found = dict(self._store.rows("meta"))
        if found.get(b"format") not in (FORMAT, *FORMER_FORMATS):
            self.report.add(
                f"meta: the format is {found.get(b'format')!r}, and this version reads {FORMAT!r}"
            )

    def _load_doomed(self) -> None:
        for key, _ in self._store.rows("garbage"):
            if key[:1] != keys.Garbage.TRIM:
                self._doomed.add(keys.parse_number(key[1:]))
        self._doomed.update(keys.parse_number(key) for key, _ in self._store.rows("uploads"))

    def _load_streams(self) -> None:
        next_id = self._store.next_id()
        for key, value in self._store.rows("streams"):
            name = _readable(key)
            try:
                row = self._store.decode_row(value)
            except StoreCorrupt as error:
                self.report.add(f"stream {name}: its row cannot be read: {error}")
                continue
            state = row.state
            if state.id in self._names:
                self.report.add(f"stream {name}: has the same id as {self._names[state.id]}")
            if state.id >= next_id:
                self.report.add(f"stream {name}: id {state.id} was never given out")
            self._streams[key] = row
            self._names[state.id] = name
            self.report.streams += 0 if state.soft_deleted else 1

    def _check_forks(self) -> None:
        forks: Counter[bytes] = Counter()
        for key, row in self._streams.items():
            origin = row.state.origin
            if origin is not None:
                source = keys.stream_key(origin.bucket, origin.name)
                forks[source] += 1
                if source not in self._streams:
                    self.report.add(f"stream {_readable(key)}: its source {_readable(source)} is missing")
            for segment in row.state.lineage:
                if segment.id not in self._names:
                    self.report.add(
                        f"stream {_readable(key)}: inherits from id {segment.id}, which is missing"
                    )
        for key, row in self._streams.items():
            if row.state.forks != forks[key]:
                self.report.add(
                    f"stream {_readable(key)}: counts {row.state.forks} forks, and there are {forks[key]}"
                )
            if row.state.soft_deleted and not row.state.forks:
                self.report.add(f"stream {_readable(key)}: is deleted and has no forks, and is still there")

    # Data

    def _check_data(self) -> None:
        needed: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        tails: dict[int, int] = {}
        for key, row in self._streams.items():
            tails[row.state.id] = row.state.tail
            for start, end, segment_id in _segments(row.state):
                low = max(start, row.state.earliest)
                if low < end:
                    needed[segment_id].append((low, end, _readable(key)))
        seen: set[int] = set()
        for stream_id, spans in self._stored_spans():
            seen.add(stream_id)
            name = self._names.get(stream_id)
            if name is None:
                if stream_id not in self._doomed:
                    self.report.add(f"data of id {stream_id} belongs to no stream")
                continue
            if spans and spans[-1][1] > tails[stream_id]:
                self.report.add(f"stream {name}: has data behind its tail {tails[stream_id]}")
            for low, end, user in needed[stream_id]:
                if not any(start <= low and end <= last for start, last in spans):
                    self.report.add(f"stream {user}: data is missing between offsets {low} and {end}")
        for stream_id in needed.keys() - seen:
            for low, end, user in needed[stream_id]:
                self.report.add(f"stream {user}: data is missing between offsets {low} and {end}")

    def _stored_spans(self) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """By stream: the ranges that its blocks cover without a hole."""
        self.tally = FeedTally(self._retained())
        current, spans = -1, list[tuple[int, int]]()
        for key, value in self._store.rows("blocks"):
            stream_id, offset = keys.parse_block_key(key)
            if stream_id != current:
                if current >= 0:
                    yield current, spans
                current, spans = stream_id, []
            where = f"stream {self._names.get(stream_id, f'with id {stream_id}')}: block at offset {offset}"
            try:
                block = Block(offset, value)
                _check_block(block)
            except StoreCorrupt as error:
                self.report.add(f"{where}: {error}")
                continue
            self.tally.stored(stream_id, block)
            self.report.bytes += len(block.payload)
            self.report.messages += len(block.ends)
            if spans and offset < spans[-1][1]:
                self.report.add(f"{where}: begins before the block before it ends")
            elif spans and offset == spans[-1][1]:
                spans[-1] = (spans[-1][0], block.end)
            else:
                spans.append((offset, block.end))
        if current >= 0:
            yield current, spans

    def _retained(self) -> dict[int, int]:
        """Of streams that the feed shows: where their retained own data begins."""
        return {
            row.state.id: max(row.state.base, row.state.earliest)
            for row in self._streams.values()
            if not row.state.soft_deleted
        }

    def _check_producers(self) -> None:
        decode = msgspec.msgpack.Decoder(ProducerState).decode
        for key, value in self._store.rows("producers"):
            stream_id = keys.parse_number(key)
            name = self._names.get(stream_id)
            if name is None:
                if stream_id not in self._doomed:
                    self.report.add(f"a producer of id {stream_id} belongs to no stream")
                continue
            self.report.producers += 1
            try:
                state = decode(value)
            except msgspec.MsgspecError as error:
                self.report.add(f"stream {name}: the producer {key[8:]!r} cannot be read: {error}")
                continue
            if state.epoch < 0 or state.last_seq < 0:
                self.report.add(f"stream {name}: the producer {key[8:]!r} stands at {state}")

    def _check_blobs(self) -> None:
        sizes: Counter[int] = Counter()
        pieces: Counter[int] = Counter()
        for key, value in self._store.rows("blobs"):
            blob, index = keys.parse_block_key(key)
            if index != pieces[blob]:
                self.report.add(f"snapshot {blob}: piece {pieces[blob]} is missing")
            pieces[blob] = index + 1
            sizes[blob] += len(value)
        owned: set[int] = set()
        for key, row in self._streams.items():
            owned.update(row.state.kept_blobs)
            snapshot = row.state.snapshot
            if snapshot is None:
                continue
            self.report.snapshots += 1
            owned.add(snapshot.blob)
            if sizes[snapshot.blob] != snapshot.size:
                found = sizes[snapshot.blob]
                self.report.add(f"stream {_readable(key)}: its snapshot has {found} of {snapshot.size} bytes")
        for blob in sizes.keys() - owned - self._doomed:
            self.report.add(f"snapshot {blob} belongs to no stream")

    def _check_deadlines(self) -> None:
        stored = {keys.parse_expiry_key(key)[::-1] for key, _ in self._store.rows("expiry")}
        said = {(key, row.deadline_ms) for key, row in self._streams.items() if row.deadline_ms is not None}
        for key, deadline_ms in stored - said:
            self.report.add(
                f"stream {_readable(key)}: would expire at {deadline_ms}, and its row does not say so"
            )
        for key, deadline_ms in said - stored:
            self.report.add(f"stream {_readable(key)}: would never expire, though its row says {deadline_ms}")

    def _check_buckets(self) -> None:
        shown: Counter[str] = Counter()
        hidden: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for key, row in self._streams.items():
            bucket = keys.parse_stream_key(key)[0]
            (hidden if row.state.soft_deleted else shown)[bucket] += 1
            sizes[bucket] += kept_bytes(row.state)
        for key, value in self._store.rows("buckets"):
            bucket = key.decode("utf-8", "replace")
            try:
                found = msgspec.msgpack.decode(value, type=BucketRow)
            except msgspec.MsgspecError as error:
                self.report.add(f"bucket {bucket}: its row cannot be read: {error}")
                continue
            self.report.buckets += 0 if found.deleted else 1
            size = sizes.pop(bucket, 0)
            if found.bytes != size:
                self.report.add(f"bucket {bucket}: counts {found.bytes} bytes, and its streams have {size}")
            counted = (shown.pop(bucket, 0), hidden.pop(bucket, 0))
            if (found.streams, found.hidden) != counted:
                said = f"{found.streams} streams and {found.hidden} deleted ones with forks"
                self.report.add(
                    f"bucket {bucket}: counts {said}, and there are {counted[0]} and {counted[1]}"
                )
        for bucket in shown.keys() | hidden.keys():
            self.report.add(f"bucket {bucket}: has streams and does not exist")

    def _check_feed(self) -> None:
        self.report.feed_messages = check_feeds(self._store, self.tally, self._names, self.report.add)

    def _read_the_rest(self) -> None:
        for family in ("sealed", "graves", "proxy"):
            for _ in self._store.rows(family):
                pass


def _check_block(block: Block) -> None:
    """Do the columns of a block agree with each other?"""
    ends, firsts = block.ends.tolist(), block.firsts.tolist()
    if not ends or ends[-1] != len(block.payload):
        raise StoreCorrupt("its messages do not end where its data does")
    if any(low >= high for low, high in zip([0, *ends], ends, strict=False)):
        raise StoreCorrupt("its messages are not in order")
    if firsts[:1] != [0] or any(
        low >= high for low, high in zip(firsts, [*firsts[1:], len(ends)], strict=True)
    ):
        raise StoreCorrupt("its appends are not in order")


def _segments(state: StreamState) -> Iterator[tuple[int, int, int]]:
    start = 0
    for segment in (*state.lineage, Inherited(state.id, state.tail)):
        yield start, segment.end, segment.id
        start = segment.end


def _readable(key: bytes) -> str:
    return key.decode("utf-8", "replace").replace("\0", "/")
