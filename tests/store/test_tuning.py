"""How RocksDB is set up, where it could go wrong."""

import random
import re
from pathlib import Path

import pytest
from rocksdict import Cache, Rdict, WriteBatch

from perennial.store import tuning
from perennial.store.errors import StoreCorrupt, StoreError
from perennial.store.keys import block_key
from perennial.store.rocks import RocksStore
from perennial.store.tuning import database_options, family_options


def test_the_blocks_of_a_stream_are_sorted_in_with_hints_and_other_rows_are_not(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store.close()
    newest = max((tmp_path / "rocks").glob("OPTIONS-*"))
    families = re.findall(r'CFOptions "(.*?)".*?hint_prefix_extractor=(\S+)', newest.read_text(), re.DOTALL)
    assert [name for name, extractor in families if extractor != "nullptr"] == ["blocks"]
    assert dict(families)["blocks"] == "rocksdb.FixedPrefix.8"


def test_hints_and_removed_ranges_do_not_disturb_each_other(tmp_path: Path) -> None:
    """They did in RocksDB before 9.2: a removed range was sorted in among the rows that it was to remove."""
    cache = Cache(1 << 20)
    options = family_options("blocks", cache)
    options.set_write_buffer_size(64 << 10)  # many memtables, each with hints of its own
    with_blocks = {"blocks": options}
    db = Rdict(
        str(tmp_path / "rocks"), database_options(cache, tmp_path / "wal"), column_families=with_blocks
    )
    blocks, family = db.get_column_family("blocks"), db.get_column_family_handle("blocks")
    expected: dict[bytes, bytes] = {}
    choose = random.Random(1)
    for _ in range(3000):
        batch = WriteBatch(raw_mode=True)
        for _ in range(choose.randint(1, 4)):
            stream_id, start = choose.randrange(8), choose.randrange(200)
            key, value = block_key(stream_id, start), choose.randbytes(20)
            if choose.random() < 0.2:
                until = block_key(stream_id, start + choose.randrange(1, 40))
                batch.delete_range(key, until, family)
                expected = {each: kept for each, kept in expected.items() if not key <= each < until}
            if choose.random() < 0.9:
                batch.put(key, value, family)
                expected[key] = value
        db.write(batch)
        if choose.random() < 0.01:
            assert list(blocks.items()) == sorted(expected.items())
    assert list(blocks.items()) == sorted(expected.items())
    db.close()


def test_a_broken_installation_is_not_taken_for_a_broken_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "_HINTS", tmp_path / "lost")
    with pytest.raises(StoreError, match=r"lost cannot be read.*install perennial again") as told:
        RocksStore(tmp_path / "data")
    assert not isinstance(told.value, StoreCorrupt)
