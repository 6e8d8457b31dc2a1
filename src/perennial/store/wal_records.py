"""RocksDB's log as far as its lengths go: is every record of a file whole?

A log is a sequence of blocks of 32 KiB. In a block, records follow each other: a checksum of four bytes, a
length of two, a type that is never zero, and the contents; less than that at a block's end is filling.
RocksDB verifies the checksums when it replays a log. But a length that points past the last block's end it
takes for a record that was never finished, drops all that follows, and goes on with the next log.
"""

from pathlib import Path
from typing import Final

BLOCK_BYTES: Final = 32 * 1024
HEADER_BYTES: Final = 7


def find_broken_record(log: Path, length: int) -> int | None:
    """Where the first record begins that does not end where one can, of those in the first `length` bytes."""
    with log.open("rb") as file:
        for start in range(0, length, BLOCK_BYTES):
            broken = _find_in_block(file.read(min(BLOCK_BYTES, length - start)))
            if broken is not None:
                return start + broken
    return None


def _find_in_block(block: bytes) -> int | None:
    end = len(block)
    at = before = 0
    while at + HEADER_BYTES <= end:
        if not block[at + 6]:
            return at
        before = at
        at += HEADER_BYTES + block[at + 4] + 256 * block[at + 5]
    if at > end:
        return before
    return None if at == end or end == BLOCK_BYTES else at
