"""The walk along a log's records, on logs that RocksDB wrote."""

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perennial.store.rocks import RocksStore
from perennial.store.wal_records import BLOCK_BYTES, HEADER_BYTES, find_broken_record
from tests.properties.profiles import examples
from tests.store.damage import newest_log

# Batches in hundreds of bytes: many to a block, and some that fill several.
sizes = st.lists(st.integers(1, 1000), min_size=1, max_size=12)


def write(store: RocksStore, size: int) -> int:
    """One batch of about that size; how long the log is then."""
    batch = store.batch()
    batch.put_proxy(b"key", bytes(100 * size))
    store.write(batch)
    return newest_log(store.directory).stat().st_size


@settings(max_examples=examples(0.2))
@given(sizes=sizes, filler=st.integers(0, BLOCK_BYTES))
def test_a_log_is_whole_wherever_a_batch_ends_and_nowhere_else(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], filler: int
) -> None:
    directory = tmp_path_factory.mktemp("store")
    with closing(RocksStore(directory)) as store:
        batch = store.batch()
        batch.put_proxy(b"key", bytes(filler))  # so that blocks end at any byte of what follows
        store.write(batch)
        ends = [write(store, size) for size in sizes]
        log = newest_log(directory)
        for end in ends:
            assert find_broken_record(log, end) is None
            assert find_broken_record(log, end - 1) is not None
            assert find_broken_record(log, end - HEADER_BYTES) is not None


def test_a_damaged_length_is_found_where_it_is(tmp_path: Path) -> None:
    with closing(RocksStore(tmp_path / "store")) as store:
        start = newest_log(store.directory).stat().st_size
        second = write(store, 1)
        length = write(store, 1)
        data = newest_log(store.directory).read_bytes()
    for place in (start, second):
        for high in range(1, 256):
            damaged = bytearray(data)
            damaged[place + 5] = high
            (tmp_path / "log").write_bytes(damaged)
            assert find_broken_record(tmp_path / "log", length) == place
