"""Chunks: how much a read gives, where it may begin, and what stands at a fork's offset."""

import pytest

from perennial.protocol.create import Anchor
from perennial.protocol.rejections import Malformed
from perennial.service import reading
from perennial.service.reading import Chunk, anchor_at, read_chunk
from perennial.store.errors import StoreCorrupt
from perennial.store.keys import block_key
from tests.builders import BYTES, JSON
from tests.service.world import World


def read(world: World, start: int, limit: int) -> Chunk | Malformed:
    state = world.visible()
    assert state is not None
    return read_chunk(world.store, state, start, limit)


def test_bytes_are_cut_at_the_limit(world: World) -> None:
    world.create(body=b"hello")
    world.append(body=b" world")
    for start in range(12):
        for limit in (1, 3, 5, 100):
            chunk = read(world, start, limit)
            assert isinstance(chunk, Chunk)
            assert (chunk.start, chunk.end) == (start, min(11, start + limit) if start < 11 else start)
            assert b"".join(chunk.pieces) == b"hello world"[start : start + limit]


def test_messages_are_never_cut(world: World) -> None:
    world.create(body=b"[11,22222,3]", content_type=JSON)
    world.append(body=b"[4444]")
    for limit, messages in ((1, [b"11"]), (6, [b"11"]), (7, [b"11", b"22222"]), (8, [b"11", b"22222", b"3"])):
        chunk = read(world, 0, limit)
        assert isinstance(chunk, Chunk)
        assert [bytes(piece) for piece in chunk.pieces] == messages
        assert chunk.end == sum(map(len, messages))
    large = read(world, 2, 1)
    assert isinstance(large, Chunk)
    assert [bytes(piece) for piece in large.pieces] == [b"22222"], "one large message comes whole"


@pytest.mark.parametrize("start", [1, 3, 6, 9, 11])
def test_a_json_read_begins_between_messages(world: World, start: int) -> None:
    world.create(body=b"[11,22222,3]", content_type=JSON)
    world.append(body=b"[4444]")
    assert isinstance(read(world, start, 100), Malformed)


@pytest.mark.parametrize("content_type", [BYTES, JSON])
def test_of_many_small_records_a_read_takes_so_many_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch, content_type: str
) -> None:
    monkeypatch.setattr(reading, "BLOCKS_PER_CHUNK", 4)
    world.create(content_type=content_type)
    for number in range(10):
        world.append(body=b"%d" % number, content_type=content_type)
    ends, content, position = [], b"", 0
    while position < 10:
        chunk = read(world, position, 100)
        assert isinstance(chunk, Chunk)
        assert chunk.start == position
        content += b"".join(chunk.pieces)
        position = chunk.end
        ends.append(position)
    assert (ends, content) == ([4, 8, 10], b"0123456789")
    fork_start = read(world, 3, 100)
    assert isinstance(fork_start, Chunk)
    assert fork_start.end == 7


@pytest.mark.parametrize("content_type", [BYTES, JSON])
@pytest.mark.parametrize("lost", [0, 1, 3])
def test_lost_records_are_an_error_that_says_where(world: World, content_type: str, lost: int) -> None:
    world.create(content_type=content_type)
    for number in range(4):
        world.append(body=b"%d" % number, content_type=content_type)
    state = world.visible()
    assert state is not None
    del world.store._tables["blocks"][block_key(state.id, lost)]
    with pytest.raises(StoreCorrupt, match=f"stream {state.id} has lost what was at offset {lost}"):
        read(world, 0, 100)


def test_nothing_is_read_at_the_tail(world: World) -> None:
    world.create(body=b"abc")
    chunk = read(world, 3, 10)
    assert isinstance(chunk, Chunk)
    assert (chunk.start, chunk.end, chunk.pieces) == (3, 3, [])


def test_an_anchor_knows_the_rest_of_the_append_there(world: World) -> None:
    world.create(body=b"[1,22,333]", content_type=JSON)
    world.append(body=b"[4,55]")
    state = world.visible()
    assert state is not None
    assert anchor_at(world.store, state, 0) == Anchor(True, [1, 3, 6])
    assert anchor_at(world.store, state, 1) == Anchor(True, [3, 6])
    assert anchor_at(world.store, state, 2) == Anchor(False, [3, 6])
    assert anchor_at(world.store, state, 6) == Anchor(True, [7, 9])
    assert anchor_at(world.store, state, 9) == Anchor(True, ())
    assert anchor_at(world.store, state, 10) is None


def test_a_fork_cuts_an_ancestors_block_at_its_base(world: World) -> None:
    world.create("a", body=b"abcdef")
    world.fork("s", "a", 4, body=b"XY")
    chunk = read(world, 0, 100)
    assert isinstance(chunk, Chunk)
    assert b"".join(chunk.pieces) == b"abcdXY"
    chunk = read(world, 3, 2)
    assert isinstance(chunk, Chunk)
    assert b"".join(chunk.pieces) == b"dX"
