"""What can happen to files, done on purpose: to copies of a store as a crash would leave them."""

import os
import random
import shutil
from pathlib import Path

from perennial.store.blocks import encode_append
from perennial.store.interface import Store
from perennial.store.rocks import RocksStore

RECORD_BYTES = 100


def record(number: int, size: int = 1) -> bytes:
    """Bytes that no compression makes smaller, the same for the same number."""
    return random.Random(number).randbytes(RECORD_BYTES * size)


def append_records(store: Store, numbers: range, size: int = 1) -> None:
    """One batch per record, as appends to stream 1; `next_id` counts along."""
    for number in numbers:
        payload = record(number, size)
        batch = store.batch()
        batch.put_blocks([(1, number * len(payload), encode_append(1, 1, payload, (len(payload),)))])
        batch.put_next_id(number + 2)
        store.write(batch)


def records_in(store: Store, size: int = 1) -> int:
    """How many records there are, all from the first on and all as they were written."""
    count = 0
    for block in store.blocks(1, 0, 1 << 40):
        assert bytes(block.payload) == record(count, size)
        assert block.start == count * size * RECORD_BYTES
        count += 1
    return count


def crash(store: RocksStore, into: Path) -> Path:
    """The files as they are now, while the store is open: what the death of the process leaves behind."""
    shutil.copytree(store.directory, into)
    return into


def newest_log(directory: Path) -> Path:
    return max((directory / "wal").glob("*.log"), key=lambda path: int(path.stem))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def truncate(path: Path, size: int) -> None:
    os.truncate(path, size)
