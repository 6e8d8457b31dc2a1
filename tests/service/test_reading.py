"""Chunks: how much a read gives, where it may begin, and what stands at a fork's offset."""

import pytest

from perennial.protocol.create import Anchor
from perennial.protocol.rejections import Malformed
from perennial.service.reading import Chunk, anchor_at, read_chunk
from tests.builders import JSON
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
