"""Hot blocks: large ones stay within the budget, least recently used first to go; small ones never stay."""

from perennial.store.blocks import Block, encode_append
from perennial.store.hot_blocks import LARGE_BYTES, HotBlocks


def block(size: int) -> Block:
    return Block(0, encode_append(1, 1, bytes(size), (size,)))


def test_a_large_block_comes_back_as_it_is() -> None:
    hot = HotBlocks(10 * LARGE_BYTES)
    kept = block(LARGE_BYTES)
    hot.keep(b"a", kept)
    assert hot.get(b"a") is kept
    assert hot.get(b"b") is None


def test_small_blocks_are_not_kept_because_sealing_rewrites_them() -> None:
    hot = HotBlocks(10 * LARGE_BYTES)
    hot.keep(b"a", block(LARGE_BYTES - 1))
    assert hot.get(b"a") is None


def test_a_block_beyond_the_budget_is_not_kept_and_drives_nothing_out() -> None:
    hot = HotBlocks(2 * LARGE_BYTES)
    hot.keep(b"a", block(LARGE_BYTES))
    hot.keep(b"b", block(3 * LARGE_BYTES))
    assert hot.get(b"b") is None
    assert hot.get(b"a") is not None


def test_the_least_recently_used_goes_first() -> None:
    hot = HotBlocks(2 * LARGE_BYTES)
    hot.keep(b"a", block(LARGE_BYTES))
    hot.keep(b"b", block(LARGE_BYTES))
    hot.get(b"a")
    hot.keep(b"c", block(LARGE_BYTES))
    assert hot.bytes == 2 * LARGE_BYTES
    assert hot.get(b"b") is None
    assert hot.get(b"a") is not None
    assert hot.get(b"c") is not None
