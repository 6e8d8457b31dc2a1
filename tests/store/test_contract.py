"""What the service may rely on, whatever the engine. See `store/interface.py`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import pytest

from perennial.protocol.state import ForkOrigin, ProducerState, StreamState
from perennial.store.blocks import Block, encode_append, merge
from perennial.store.interface import Batch, BucketRow, Store, StreamRow
from perennial.store.keys import stream_key
from tests.builders import NOW_MS, appended, closed, inherits, stream


@contextmanager
def writing(store: Store) -> Iterator[Batch]:
    batch = store.batch()
    yield batch
    store.write(batch)


def put_blocks(store: Store, stream_id: int, *payloads: bytes, start: int = 0) -> None:
    batch = store.batch()
    for payload in payloads:
        batch.put_blocks([(stream_id, start, encode_append(1, 1, payload, (len(payload),)))])
        start += len(payload)
    store.write(batch)


def found(store: Store, stream_id: int, start: int, end: int) -> list[tuple[int, bytes]]:
    return [(block.start, bytes(block.payload)) for block in store.blocks(stream_id, start, end)]


def values(store: Store, stream_id: int, start: int, end: int) -> list[bytes]:
    return [value for _, value in store.block_values(stream_id, start, end)]


def nobody(number: int) -> bool:
    return False


def collect_everything(store: Store) -> int:
    steps = 0
    while store.collect_garbage(nobody):
        steps += 1
    return steps


ROW = StreamRow(stream(), None)


# Batches


def test_an_empty_store_knows_nothing(store: Store) -> None:
    assert store.stream(stream_key("default", "a")) is None
    assert list(store.streams("default", "", "")) == []
    assert store.producer(1, "p") is None
    assert list(store.blocks(1, 0, 100)) == []
    assert store.sealed_until(1) == 0
    assert store.due(NOW_MS, 10) == []
    assert store.bucket("default") is None
    assert store.next_id() == 1
    assert store.piece(1, 0) is None
    assert store.graves("default") == {}
    assert list(store.feed("default", 0)) == []
    assert not store.collect_garbage(nobody)


def test_a_batch_happens_when_it_is_written_and_not_before(store: Store) -> None:
    batch = store.batch()
    batch.put_next_id(7)
    batch.put_bucket("default", BucketRow(created_ms=1))
    assert store.next_id() == 1
    assert store.bucket("default") is None
    store.write(batch)
    assert store.next_id() == 7
    assert store.bucket("default") == BucketRow(created_ms=1)


def test_the_last_change_of_a_batch_counts(store: Store) -> None:
    key = stream_key("default", "a")
    with writing(store) as batch:
        batch.put_stream(key, ROW)
        batch.remove_stream(key)
    assert store.stream(key) is None


def test_an_empty_batch_changes_nothing(store: Store) -> None:
    store.write(store.batch())
    store.begin_sync()()
    store.end_sync()
    assert store.next_id() == 1


# Streams


@pytest.mark.parametrize(
    "row",
    [
        StreamRow(stream(), None),
        StreamRow(stream(ttl_seconds=2**53 - 1), (2**53 - 1) * 1000 + NOW_MS),
        StreamRow(stream(expires_at_ms=0), 0),
        StreamRow(stream(appended(b"abc", seq="\xff"), closed(producer=("p", 2**53 - 1, 2**53 - 1))), None),
        StreamRow(
            stream(
                content_type="text/plain; charset=\xe9",
                id=2**40,
                origin=ForkOrigin("default", "söurce", 7, 2),
                lineage=inherits((1, 4), (2, 9)),
            ),
            None,
        ),
    ],
)
def test_a_stream_comes_back_as_it_was(store: Store, row: StreamRow) -> None:
    key = stream_key("default", "a/b ü")
    with writing(store) as batch:
        batch.put_stream(key, row)
    assert store.stream(key) == row
    assert store.stream(stream_key("default", "a/b")) is None


def test_a_removed_stream_is_gone(store: Store) -> None:
    key = stream_key("default", "a")
    with writing(store) as batch:
        batch.put_stream(key, ROW)
    with writing(store) as batch:
        batch.remove_stream(key)
    assert store.stream(key) is None


def names(store: Store, bucket: str, prefix: str = "", after: str = "") -> list[str]:
    return [name for name, _ in store.streams(bucket, prefix, after)]


def test_streams_are_listed_by_name_within_their_bucket(store: Store) -> None:
    batch = store.batch()
    for name in ("b", "a/2", "a", "a/1", "é", "aa", "ab"):
        batch.put_stream(stream_key("bucket", name), ROW)
    for bucket in ("bucke", "bucket0", "bucket-", "buckeu"):
        batch.put_stream(stream_key(bucket, "other"), ROW)
    store.write(batch)
    assert names(store, "bucket") == ["a", "a/1", "a/2", "aa", "ab", "b", "é"]
    assert names(store, "bucket", prefix="a") == ["a", "a/1", "a/2", "aa", "ab"]
    assert names(store, "bucket", prefix="a/") == ["a/1", "a/2"]
    assert names(store, "bucket", prefix="zz") == []
    assert names(store, "bucket", after="a/1") == ["a/2", "aa", "ab", "b", "é"]
    assert names(store, "bucket", after="a/15") == ["a/2", "aa", "ab", "b", "é"]
    assert names(store, "bucket", prefix="a", after="a/2") == ["aa", "ab"]
    assert names(store, "bucket", prefix="b", after="a") == ["b"]
    assert names(store, "bucket", prefix="a", after="b") == []
    assert names(store, "bucket", after="é") == []


# Producers


def test_producers_belong_to_their_stream(store: Store) -> None:
    with writing(store) as batch:
        batch.put_producer(1, "p", ProducerState(0, 5))
        batch.put_producer(1, "pé", ProducerState(2**53 - 1, 0))
        batch.put_producer(2, "p", ProducerState(3, 1))
    assert store.producer(1, "p") == ProducerState(0, 5)
    assert store.producer(1, "pé") == ProducerState(2**53 - 1, 0)
    assert store.producer(2, "p") == ProducerState(3, 1)
    assert store.producer(3, "p") is None
    assert store.producer(1, "") is None


# Blocks


def test_every_range_gives_the_blocks_it_touches(store: Store) -> None:
    payloads = [b"aaa", b"b", b"cccc", b"dd"]
    starts = list(accumulate(map(len, payloads), initial=0))
    put_blocks(store, 1, b"before")
    put_blocks(store, 2, *payloads)
    put_blocks(store, 3, b"after")
    tail = starts[-1]
    for start in range(tail):
        for end in range(start + 1, tail + 2):
            expected = [
                (at, payload)
                for at, payload in zip(starts, payloads, strict=False)
                if at < end and at + len(payload) > start
            ]
            assert found(store, 2, start, end) == expected, (start, end)


def test_a_stream_may_begin_anywhere(store: Store) -> None:
    """As a fork's own blocks do."""
    put_blocks(store, 1, b"parent's")
    put_blocks(store, 2, b"abc", b"de", start=100)
    assert found(store, 2, 0, 1000) == [(100, b"abc"), (103, b"de")]
    assert found(store, 2, 100, 103) == [(100, b"abc")]
    assert found(store, 2, 0, 100) == []
    assert found(store, 2, 105, 200) == []


def test_block_values_are_those_that_begin_in_the_range(store: Store) -> None:
    put_blocks(store, 1, b"before")
    put_blocks(store, 2, *[b"abcd"] * 300)
    put_blocks(store, 3, *[b"after"] * 300)
    for start, end in ((0, 1200), (4, 1200), (5, 9), (1196, 1 << 62), (1200, 1300)):
        expected = [offset for offset in range(0, 1200, 4) if start <= offset < end]
        rows = list(store.block_values(2, start, end))
        assert [offset for offset, _ in rows] == expected
        assert {bytes(Block(offset, value).payload) for offset, value in rows} <= {b"abcd"}


def test_block_values_are_as_they_were_when_the_first_was_asked_for(store: Store) -> None:
    put_blocks(store, 1, b"aa", b"bb", b"cc")
    reading = store.block_values(1, 0, 6)
    seen = [next(reading)]
    with writing(store) as batch:
        batch.discard_before(1, 4)
    collect_everything(store)
    assert [offset for offset, _ in [*seen, *reading]] == [0, 2, 4]
    assert found(store, 1, 0, 6) == [(4, b"cc")]


def test_large_blocks_come_back_whole(store: Store) -> None:
    payload = bytes(range(256)) * 8192
    put_blocks(store, 1, payload, payload[::-1])
    assert found(store, 1, 0, 1) == [(0, payload)]
    assert found(store, 1, len(payload) - 1, len(payload) + 1) == [
        (0, payload),
        (len(payload), payload[::-1]),
    ]


def test_sealing_swaps_small_blocks_for_one(store: Store) -> None:
    put_blocks(store, 1, b"aa", b"bb", b"cc", b"dd")
    put_blocks(store, 2, b"aa", b"bb")
    with writing(store) as batch:
        batch.put_sealed(1, 2, 6, merge(values(store, 1, 2, 6)))
    assert found(store, 1, 0, 8) == [(0, b"aa"), (2, b"bbcc"), (6, b"dd")]
    assert found(store, 1, 5, 6) == [(2, b"bbcc")]
    assert store.sealed_until(1) == 6
    assert found(store, 2, 0, 8) == [(0, b"aa"), (2, b"bb")]
    assert store.sealed_until(2) == 0


def test_a_large_block_may_be_called_sealed_as_it_is(store: Store) -> None:
    put_blocks(store, 1, b"large")
    with writing(store) as batch:
        batch.mark_sealed(1, 5)
    assert store.sealed_until(1) == 5
    assert found(store, 1, 0, 5) == [(0, b"large")]


def test_a_reader_in_the_middle_does_not_notice_a_swap(store: Store) -> None:
    put_blocks(store, 1, b"aa", b"bb", b"cc")
    reader = store.blocks(1, 0, 6)
    seen = [next(reader)]
    with writing(store) as batch:
        batch.put_sealed(1, 0, 6, merge(values(store, 1, 0, 6)))
    seen += reader
    assert b"".join(block.payload for block in seen) == b"aabbcc"
    assert found(store, 1, 0, 6) == [(0, b"aabbcc")]


# Deadlines


def test_deadlines_are_due_earliest_first(store: Store) -> None:
    key = stream_key("default", "a")
    batch = store.batch()
    for deadline in (50, 7, 2**40, 0, 300):
        batch.put_deadline(deadline, key + str(deadline).encode())
    store.write(batch)
    assert store.due(-1, 10) == []
    assert store.due(0, 10) == [(0, key + b"0")]
    assert [deadline for deadline, _ in store.due(300, 10)] == [0, 7, 50, 300]
    assert [deadline for deadline, _ in store.due(299, 10)] == [0, 7, 50]
    assert [deadline for deadline, _ in store.due(2**50, 2)] == [0, 7]


def test_a_moved_deadline_is_due_once(store: Store) -> None:
    key = stream_key("default", "a")
    with writing(store) as batch:
        batch.put_deadline(5, key)
    with writing(store) as batch:
        batch.remove_deadline(5, key)
        batch.put_deadline(9, key)
    assert store.due(100, 10) == [(9, key)]


def test_streams_may_share_a_deadline(store: Store) -> None:
    first, second = stream_key("default", "a"), stream_key("default", "b")
    with writing(store) as batch:
        batch.put_deadline(5, first)
        batch.put_deadline(5, second)
    with writing(store) as batch:
        batch.remove_deadline(5, first)
    assert store.due(5, 10) == [(5, second)]


# Buckets and numbers


def test_a_bucket_comes_back_as_it_was(store: Store) -> None:
    row = BucketRow(created_ms=NOW_MS, streams=3, hidden=1, position=99, deleted=True)
    with writing(store) as batch:
        batch.put_bucket("agents", row)
    assert store.bucket("agents") == row
    assert store.bucket("agent") is None


def test_numbers_are_remembered(store: Store) -> None:
    with writing(store) as batch:
        batch.put_next_id(2**40)
    assert store.next_id() == 2**40


# Garbage


@pytest.mark.parametrize("records", [0, 3, 1000])
def test_a_discarded_stream_leaves_nothing_behind(store: Store, records: int) -> None:
    for stream_id in (1, 2, 3):
        put_blocks(store, stream_id, *[b"x"] * records)
        with writing(store) as batch:
            batch.put_producer(stream_id, "p", ProducerState(0, 0))
            batch.mark_sealed(stream_id, records)
    with writing(store) as batch:
        batch.discard(2)
    assert len(found(store, 2, 0, 2000)) == records, "whenever there is time"
    assert collect_everything(store) == 1
    assert found(store, 2, 0, 2000) == []
    assert store.producer(2, "p") is None
    assert store.sealed_until(2) == 0
    for stream_id in (1, 3):
        assert len(found(store, stream_id, 0, 2000)) == records
        assert store.producer(stream_id, "p") == ProducerState(0, 0)
        assert store.sealed_until(stream_id) == records


def test_garbage_is_collected_one_stream_at_a_time(store: Store) -> None:
    for stream_id in (1, 2, 3):
        put_blocks(store, stream_id, b"x")
    with writing(store) as batch:
        for stream_id in (1, 2, 3):
            batch.discard(stream_id)
    assert store.collect_garbage(nobody)
    assert sum(bool(found(store, stream_id, 0, 9)) for stream_id in (1, 2, 3)) == 2
    assert collect_everything(store) == 2


def test_what_someone_reads_is_collected_later(store: Store) -> None:
    put_blocks(store, 1, b"read")
    put_blocks(store, 2, b"left")
    with writing(store) as batch:
        batch.discard(1)
        batch.discard(2)
    assert store.collect_garbage(lambda number: number == 1)
    assert not store.collect_garbage(lambda number: number == 1)
    assert found(store, 1, 0, 9) == [(0, b"read")]
    assert found(store, 2, 0, 9) == []
    assert collect_everything(store) == 1
    assert found(store, 1, 0, 9) == []


@pytest.mark.parametrize("records", [4, 1000])
def test_what_lies_before_an_offset_may_be_discarded(store: Store, records: int) -> None:
    put_blocks(store, 1, *[b"abcd"] * records)
    put_blocks(store, 2, *[b"abcd"] * records)
    tail = 4 * records
    for offset, left in ((0, records), (3, records), (tail - 5, 2), (tail - 4, 1), (tail - 1, 1)):
        with writing(store) as batch:
            batch.discard_before(1, offset)
        collect_everything(store)
        assert len(found(store, 1, 0, tail)) == left, offset
    assert len(found(store, 2, 0, tail)) == records


# The feed


def test_a_feed_is_read_from_the_value_that_covers_a_position(store: Store) -> None:
    with writing(store) as batch:
        batch.put_feed("agents", 1, b"one to four")
        batch.put_feed("agents", 5, b"five to nine")
        batch.put_feed("agents", 10, b"ten")
        batch.put_feed("agent", 1, b"another")
        batch.put_feed("agents-", 1, b"bucket")
    values = [(1, b"one to four"), (5, b"five to nine"), (10, b"ten")]
    assert list(store.feed("agents", 0)) == values
    assert list(store.feed("agents", 4)) == values
    assert list(store.feed("agents", 5)) == values[1:]
    assert list(store.feed("agents", 9)) == values[1:]
    assert list(store.feed("agents", 99)) == values[2:]


def test_feed_values_are_replaced_by_one(store: Store) -> None:
    with writing(store) as batch:
        for at in (1, 2, 3, 4):
            batch.put_feed("agents", at, b"%d" % at)
    with writing(store) as batch:
        batch.replace_feed("agents", 2, 3, b"2-3")
        batch.mark_feed_sealed("agents", 4)
    assert list(store.feed("agents", 0)) == [(1, b"1"), (2, b"2-3"), (4, b"4")]
    assert store.feed_sealed_until("agents") == 4
    assert store.feed_sealed_until("agent") == 0
    with writing(store) as batch:
        batch.replace_feed("agents", 1, 2, None)
    assert list(store.feed("agents", 0)) == [(4, b"4")]


def test_a_cleared_feed_takes_its_graves_along(store: Store) -> None:
    for bucket in ("agents", "agent"):
        with writing(store) as batch:
            batch.put_feed(bucket, 1, b"x")
            batch.put_grave(bucket, 7, 100)
    with writing(store) as batch:
        batch.clear_feed("agents")
    assert list(store.feed("agents", 0)) == []
    assert store.graves("agents") == {}
    assert list(store.feed("agent", 0)) == [(1, b"x")]
    assert store.graves("agent") == {7: 100}


def test_graves_are_dug_and_removed(store: Store) -> None:
    with writing(store) as batch:
        batch.put_grave("agents", 7, 100)
        batch.put_grave("agents", 2**40, 2**63 - 1)
    assert store.graves("agents") == {7: 100, 2**40: 2**63 - 1}
    with writing(store) as batch:
        batch.remove_grave("agents", 7)
    assert store.graves("agents") == {2**40: 2**63 - 1}


# Blobs


def test_a_blob_is_kept_once_it_is_complete(open_store: Callable[[Path], Store], tmp_path: Path) -> None:
    first = open_store(tmp_path)
    for blob in (5, 6):
        with writing(first) as batch:
            batch.begin_blob(blob)
            batch.put_piece(blob, 0, b"piece")
            batch.put_piece(blob, 1, b"another")
    with writing(first) as batch:
        batch.keep_blob(5)
    first.close()
    second = open_store(tmp_path)
    assert collect_everything(second) == 1
    assert [second.piece(5, 0), second.piece(5, 1), second.piece(5, 2)] == [b"piece", b"another", None]
    assert [second.piece(6, 0), second.piece(6, 1)] == [None, None]
    with writing(second) as batch:
        batch.discard_blob(5)
    collect_everything(second)
    assert second.piece(5, 0) is None
    second.close()


# All together


def test_everything_is_there_after_reopening(open_store: Callable[[Path], Store], tmp_path: Path) -> None:
    key = stream_key("agents", "a")
    state: StreamState = stream(appended(b"abc"), ttl_seconds=60)
    first = open_store(tmp_path)
    put_blocks(first, 1, b"abc")
    with writing(first) as batch:
        batch.put_stream(key, StreamRow(state, 99))
        batch.put_producer(1, "p", ProducerState(1, 2))
        batch.put_deadline(99, key)
        batch.put_bucket("agents", BucketRow(created_ms=1, streams=1, position=4))
        batch.put_feed("agents", 3, b"feed")
        batch.put_grave("agents", 9, 1)
        batch.mark_sealed(1, 3)
        batch.discard(77)
        batch.put_next_id(42)
    first.close()
    second = open_store(tmp_path)
    assert second.stream(key) == StreamRow(state, 99)
    assert found(second, 1, 0, 3) == [(0, b"abc")]
    assert second.producer(1, "p") == ProducerState(1, 2)
    assert second.due(99, 1) == [(99, key)]
    assert second.bucket("agents") == BucketRow(created_ms=1, streams=1, position=4)
    assert list(second.feed("agents", 0)) == [(3, b"feed")]
    assert second.graves("agents") == {9: 1}
    assert second.sealed_until(1) == 3
    assert second.next_id() == 42
    assert collect_everything(second) == 1
    second.close()


def test_blocks_are_decoded_where_they_stand(store: Store) -> None:
    with writing(store) as batch:
        batch.put_blocks([(1, 10, encode_append(5, 6, b"aabbb", (2, 5)))])
    (block,) = store.blocks(1, 0, 100)
    assert isinstance(block, Block)
    assert (block.start, block.end, list(block.ends)) == (10, 15, [2, 5])
    assert (list(block.positions), list(block.times)) == ([5], [6])
