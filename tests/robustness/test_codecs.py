"""Stored values that are not what was written: every codec says `StoreCorrupt`, or gives a value that can be
used without harm. None of them may bring the process down or loop for ever."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perennial.protocol.state import ProducerState, StreamState
from perennial.service.checking_feed import FeedTally
from perennial.store import keys
from perennial.store.additions import Additions, Entry
from perennial.store.blocks import Block, encode_append
from perennial.store.errors import StoreCorrupt, StoreError
from perennial.store.feedlog import FeedBlock, encode_commit
from perennial.store.interface import StreamRow
from perennial.store.rocks import RocksStore, _bucket_row, _producer_state, _stream_row


def _feed_value() -> bytes:
    entries: list[Entry] = []
    for number in range(1, 4):
        row = (number, b"stream-%d" % number, b"text/plain")
        entries.append((row, 0, b"abcdef", [2, 6], number == 3))
    return encode_commit(Additions(entries, 1), 12345)


BLOCK = encode_append(7, 8, b"hello world", [5, 11])
FEED = _feed_value()
ROW = msgspec.msgpack.encode(StreamRow(StreamState(1, "text/plain", 2, 3, ttl_seconds=4, tail=5), 6))


@st.composite
def damaged(draw: st.DrawFn, value: bytes) -> bytes:
    """Bytes flipped, cut off, added, or nothing of the original at all."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=200))
    content = bytearray(value)
    for _ in range(draw(st.integers(1, 6))):
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.integers(0, len(content)))]) + draw(st.binary(max_size=8))


def use_block(value: bytes) -> None:
    block = Block(100, value)
    assert len(block.payload) == block.end - block.start <= len(value)
    for column in (block.positions, block.times, block.firsts, block.ends):
        assert len(column) * 4 <= len(value)
    block.is_boundary(105)
    first, last = block.message_range(100, 1 << 60)
    list(block.messages(first, min(last, first + 10)))
    block.cut(101, 110)
    block.append_after(100)


def use_feed(value: bytes) -> None:
    block = FeedBlock(value)
    assert len(block.positions) == len(block.streams) == len(block.counts)
    FeedTally({1: 0, 2: 3}).told(block)
    list(block.table.each_name())


@given(damaged(BLOCK))
def test_damaged_blocks(value: bytes) -> None:
    _try(use_block, value)


@given(damaged(FEED))
def test_damaged_feed_values(value: bytes) -> None:
    _try(use_feed, value)


@given(damaged(ROW))
def test_damaged_stream_rows(value: bytes) -> None:
    _try(_stream_row, value)


@given(damaged(msgspec.msgpack.encode(ProducerState(1, 2))))
def test_damaged_producers(value: bytes) -> None:
    _try(_producer_state, value)


@given(damaged(ROW))
def test_damaged_buckets(value: bytes) -> None:
    _try(_bucket_row, value)


@given(st.binary(max_size=20))
def test_damaged_numbers(value: bytes) -> None:
    _try(keys.parse_number, value)


def _try(use: Callable[[bytes], object], value: bytes) -> None:
    with suppress(StoreCorrupt):
        use(value)


def test_the_undamaged_ones_are_fine() -> None:
    use_block(BLOCK)
    use_feed(FEED)
    assert _stream_row(ROW).state.tail == 5


@pytest.mark.parametrize("value", [b"", b"\x01", b"\x02" + bytes(40), b"\x01\x00\x00\x00" + b"\xff" * 8])
def test_a_store_with_such_a_block_says_so(tmp_path: Path, value: bytes) -> None:
    store = RocksStore(tmp_path / "data")
    batch = store.batch()
    batch.put_blocks([(1, 0, value)])
    store.write(batch)
    with pytest.raises(StoreError):
        list(store.blocks(1, 0, 10))
    store.close()
