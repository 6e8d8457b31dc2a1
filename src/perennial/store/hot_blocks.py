"""Large blocks that were read lately, kept as they are handed out.

RocksDB's own cache holds them too, but taking a value out of it copies the value: for a mebibyte that was
half the time of a read. A block of this size is never rewritten under its key (sealing leaves large records
alone, and what it has sealed as well), so a key that is still there means the same bytes. A walk that began
before a run was sealed, though, finds the sealed block at the run's first key, and then its records as well.
"""

from typing import Final

from perennial.store.blocks import Block

LARGE_BYTES: Final = 64 * 1024


class HotBlocks:
    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self.bytes = 0
        # In the order of their last use, by key.
        self._blocks: dict[bytes, Block] = {}

    def get(self, key: bytes) -> Block | None:
        block = self._blocks.pop(key, None)
        if block is not None:
            self._blocks[key] = block
        return block

    def keep(self, key: bytes, block: Block) -> None:
        size = block.end - block.start
        if not LARGE_BYTES <= size <= self._budget:
            return
        self._blocks[key] = block
        self.bytes += size
        while self.bytes > self._budget:
            oldest = self._blocks.pop(next(iter(self._blocks)))
            self.bytes -= oldest.end - oldest.start
