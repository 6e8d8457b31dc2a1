"""RocksDB's files after a crash, and after worse: nothing acknowledged is ever lost without a word."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perennial.store import rocks
from perennial.store.errors import StoreCorrupt, StoreError, StoreLocked
from perennial.store.interface import StreamRow
from perennial.store.keys import stream_key
from perennial.store.rocks import RocksStore
from tests.builders import stream
from tests.store.damage import append_records, crash, flip, newest_log, records_in, truncate


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    with closing(RocksStore(tmp_path / "data")) as store:
        yield store


def reopened(directory: Path) -> int:
    with closing(RocksStore(directory)) as store:
        return records_in(store)


# Crashes


def test_a_killed_process_loses_nothing_it_has_written(store: RocksStore, tmp_path: Path) -> None:
    append_records(store, range(50))
    assert reopened(crash(store, tmp_path / "killed")) == 50


def test_a_store_may_crash_again_and_again(tmp_path: Path) -> None:
    directory = tmp_path / "0"
    for life in range(4):
        with closing(RocksStore(directory)) as store:
            assert records_in(store) == 10 * life
            assert store.next_id() == 10 * life + 1
            append_records(store, range(10 * life, 10 * life + 10))
            directory = crash(store, tmp_path / str(life + 1))
    assert reopened(directory) == 40


@pytest.mark.parametrize("kept", ["nothing", "one byte", "half", "all but one byte", "zeros"])
def test_a_log_torn_in_its_last_unsynced_record_loses_nothing_that_was_synced(
    store: RocksStore, tmp_path: Path, kept: str
) -> None:
    append_records(store, range(20))
    store.sync()
    synced = newest_log(store.directory).stat().st_size
    append_records(store, range(20, 21))
    torn = crash(store, tmp_path / "torn")
    log = newest_log(torn)
    written = log.stat().st_size
    assert written > synced + 2
    left = {"nothing": 0, "one byte": 1, "half": (written - synced) // 2, "zeros": 0}
    truncate(log, synced + left.get(kept, written - synced - 1))
    if kept == "zeros":
        truncate(log, written)  # some file systems keep the new length without the new bytes
    with closing(RocksStore(torn)) as recovered:
        assert records_in(recovered) == 20
        append_records(recovered, range(20, 25))
        recovered.sync()
    assert reopened(torn) == 25


def test_records_of_a_batch_are_torn_together(store: RocksStore, tmp_path: Path) -> None:
    """A batch holds a block and a counter: never one without the other."""
    append_records(store, range(5))
    size = newest_log(store.directory).stat().st_size
    append_records(store, range(5, 6))
    whole = newest_log(store.directory).stat().st_size
    for cut in (*range(size, whole, 25), whole):
        torn = crash(store, tmp_path / f"torn at {cut}")
        truncate(newest_log(torn), cut)
        (torn / "wal" / "SYNCED").unlink()
        with closing(RocksStore(torn)) as recovered:
            assert recovered.next_id() == records_in(recovered) + 1
            assert records_in(recovered) == (6 if cut == whole else 5)


def test_notes_that_a_crash_left_half_written_are_passed_over(store: RocksStore, tmp_path: Path) -> None:
    """RocksDB writes its options under another name first."""
    append_records(store, range(5))
    torn = crash(store, tmp_path / "torn")
    (torn / "rocks" / "OPTIONS-000999.dbtmp").write_bytes(b"[Vers")
    assert reopened(torn) == 5


@pytest.mark.parametrize("place", [b"rocksdb_version", b'CFOptions "blocks"', b'blocks"'])
def test_a_damaged_note_of_the_options_keeps_nobody_out(
    store: RocksStore, tmp_path: Path, place: bytes
) -> None:
    append_records(store, range(5))
    damaged = crash(store, tmp_path / "damaged")
    note = max((damaged / "rocks").glob("OPTIONS-*"))
    written = note.read_bytes()
    assert place in written
    note.write_bytes(written.replace(place, b"\xff" + place[1:]))
    assert reopened(damaged) == 5


@pytest.mark.parametrize(
    "said",
    [
        "IO error: While open a file for appending: x/000010.log: Permission denied",
        "IO error: While open a file for lock: x/LOCK: Permission denied",
        "IO error: While open a file for lock: x/LOCK: Read-only file system",
    ],
)
def test_a_store_that_may_not_be_written_is_neither_damaged_nor_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise Exception(said)

    # What the binding says; tests run by root are refused nothing.
    monkeypatch.setattr(rocks, "Rdict", refuse)
    with pytest.raises(StoreError, match="takes the user that it belongs to") as told:
        RocksStore(tmp_path)
    assert not isinstance(told.value, StoreCorrupt | StoreLocked)


# Damage to the log


@pytest.mark.parametrize("missing", [1, 50, 2000])
def test_a_log_shorter_than_what_was_acknowledged_is_an_error_that_names_it(
    store: RocksStore, tmp_path: Path, missing: int
) -> None:
    append_records(store, range(20))
    store.sync()
    damaged = crash(store, tmp_path / "damaged")
    log = newest_log(damaged)
    truncate(log, log.stat().st_size - missing)
    with pytest.raises(StoreCorrupt, match=str(log)):
        RocksStore(damaged)


def test_an_older_log_that_is_still_needed_is_checked_as_well(store: RocksStore, tmp_path: Path) -> None:
    append_records(store, range(20))
    older = newest_log(store.directory)
    store._tables["blocks"].flush()  # RocksDB goes on in a new file, but needs the old one for other tables
    append_records(store, range(20, 40))
    store.sync()
    assert older.exists()
    damaged = crash(store, tmp_path / "damaged")
    log = damaged / "wal" / older.name
    assert log != newest_log(damaged)
    truncate(log, log.stat().st_size - 1)
    with pytest.raises(StoreCorrupt, match=str(log)):
        RocksStore(damaged)


def test_after_an_error_the_operator_may_go_on_with_what_is_left(store: RocksStore, tmp_path: Path) -> None:
    append_records(store, range(20))
    store.sync()
    damaged = crash(store, tmp_path / "damaged")
    log = newest_log(damaged)
    truncate(log, log.stat().st_size - 50)
    mark = damaged / "wal" / "SYNCED"
    with pytest.raises(StoreCorrupt, match=f"remove {mark}"):
        RocksStore(damaged)
    mark.unlink()
    assert reopened(damaged) == 19


def test_a_flipped_byte_in_the_log_is_never_a_silent_loss(store: RocksStore, tmp_path: Path) -> None:
    """Wherever it is: a damaged length must not pass for an unfinished record at the end."""
    starts = []
    for number in range(8):
        starts.append(newest_log(store.directory).stat().st_size)
        append_records(store, range(number, number + 1))
    store.sync()
    # A log record is a checksum of four bytes, a length of two, a type, and then what was written.
    for position in [start + byte for start in (starts[0], starts[4], starts[7]) for byte in (*range(7), 60)]:
        damaged = crash(store, tmp_path / "damaged")
        flip(newest_log(damaged), position)
        with pytest.raises(StoreCorrupt, match=str(damaged)):
            RocksStore(damaged)
        shutil.rmtree(damaged)


def test_a_damaged_length_at_the_end_of_the_log_is_noticed(store: RocksStore, tmp_path: Path) -> None:
    append_records(store, range(12))
    store.sync()
    before = newest_log(store.directory).stat().st_size
    append_records(store, range(12, 20))
    store.sync()
    damaged = crash(store, tmp_path / "damaged")
    # A log record is a checksum of four bytes, then its length.
    flip(newest_log(damaged), before + 5)
    with pytest.raises(StoreCorrupt, match=r"acknowledged"):
        RocksStore(damaged)


@pytest.mark.parametrize("size", [1, 700], ids=["small records", "records of several blocks"])
def test_a_damaged_head_in_an_older_log_is_noticed(store: RocksStore, tmp_path: Path, size: int) -> None:
    """RocksDB itself goes on with the next log, as if a crash had torn this one."""
    starts = []
    for number in range(6):
        starts.append(newest_log(store.directory).stat().st_size)
        append_records(store, range(number, number + 1), size)
    older = newest_log(store.directory)
    store._tables["blocks"].flush()  # RocksDB goes on in a new file, but needs the old one for other tables
    append_records(store, range(6, 9), size)
    store.sync()
    assert older.exists()
    assert older.name != newest_log(store.directory).name
    for position in [start + byte for start in starts for byte in range(7)]:
        damaged = crash(store, tmp_path / "damaged")
        flip(damaged / "wal" / older.name, position)
        with pytest.raises(StoreCorrupt, match=str(damaged)):
            RocksStore(damaged)
        shutil.rmtree(damaged)


def test_a_log_that_has_vanished_is_noticed(store: RocksStore, tmp_path: Path) -> None:
    append_records(store, range(12))
    store.sync()
    damaged = crash(store, tmp_path / "damaged")
    newest_log(damaged).unlink()
    with pytest.raises(StoreCorrupt, match=str(damaged / "wal")):
        RocksStore(damaged)
    with pytest.raises(StoreCorrupt):
        RocksStore(damaged)  # and stays an error


# Damage to the tables


@pytest.mark.parametrize("content", [b"", b"garbage", b"MANIFEST-999999\n"])
def test_a_damaged_current_file_is_an_error_that_names_it(
    store: RocksStore, tmp_path: Path, content: bytes
) -> None:
    append_records(store, range(12))
    damaged = crash(store, tmp_path / "damaged")
    (damaged / "rocks" / "CURRENT").write_bytes(content)
    with pytest.raises(StoreCorrupt, match=r"CURRENT|MANIFEST-999999"):
        RocksStore(damaged)


def test_a_missing_current_file_does_not_make_a_new_store(store: RocksStore, tmp_path: Path) -> None:
    append_records(store, range(12))
    damaged = crash(store, tmp_path / "damaged")
    (damaged / "rocks" / "CURRENT").unlink()
    with pytest.raises(StoreCorrupt, match=str(damaged)):
        RocksStore(damaged)


@pytest.mark.parametrize("how", ["missing", "empty", "first byte", "middle", "last byte", "half", "most"])
def test_a_damaged_manifest_is_an_error_that_names_it(store: RocksStore, tmp_path: Path, how: str) -> None:
    append_records(store, range(12))
    store.sync()
    damaged = crash(store, tmp_path / "damaged")
    (manifest,) = (damaged / "rocks").glob("MANIFEST-*")
    size = manifest.stat().st_size
    if how == "missing":
        manifest.unlink()
    elif how in ("empty", "half", "most"):
        truncate(manifest, {"empty": 0, "half": size // 2, "most": size - 10}[how])
    else:
        flip(manifest, {"first byte": 0, "middle": size // 2, "last byte": size - 1}[how])
    with pytest.raises(StoreCorrupt, match="MANIFEST"):
        RocksStore(damaged)


LARGE = 250  # records of 25 kB: each stands alone in a table's block


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A store whose records have reached a table file: opening moves them out of the log."""
    directory = tmp_path / "tables"
    with closing(RocksStore(directory)) as store:
        append_records(store, range(6), size=LARGE)
        batch = store.batch()
        for number in range(2000):
            batch.put_stream(stream_key("default", f"stream {number}"), StreamRow(stream()))
        store.write(batch)
    with closing(RocksStore(directory)) as store:
        assert records_in(store, size=LARGE) == 6
    return directory


def largest_table(directory: Path) -> Path:
    return max((directory / "rocks").glob("*.sst"), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize("place", [0.05, 0.3, 0.6, 0.8])
def test_a_damaged_table_is_noticed_by_whoever_reads_there(tables: Path, place: float) -> None:
    """From any offset: looking for the block that covers it must not step over the damage."""
    table = largest_table(tables)
    flip(table, int(table.stat().st_size * place))
    size = LARGE * 100
    noticed = 0
    with closing(RocksStore(tables)) as store:
        for start in range(0, 6 * size, size // 2):
            try:
                data = b"".join(block.cut(start, 6 * size) for block in store.blocks(1, start, 6 * size))
            except StoreCorrupt as error:
                noticed += table.name in str(error)
            else:
                assert len(data) == 6 * size - start, "never less than there was"
    assert noticed


def test_a_damaged_table_is_noticed_by_a_look_up(tables: Path) -> None:
    for table in (tables / "rocks").glob("*.sst"):
        if table != largest_table(tables):
            flip(table, 40)
    with pytest.raises(StoreCorrupt, match=r"\.sst"), closing(RocksStore(tables)) as store:
        [store.stream(stream_key("default", f"stream {number}")) for number in range(2000)]
    with pytest.raises(StoreCorrupt, match=r"\.sst"), closing(RocksStore(tables)) as store:
        list(store.streams("default", "", ""))


@pytest.mark.parametrize("size", [None, 0, 1000])
def test_a_missing_or_short_table_is_an_error_that_names_it(tables: Path, size: int | None) -> None:
    table = largest_table(tables)
    if size is None:
        table.unlink()
    else:
        truncate(table, size)
    with pytest.raises(StoreCorrupt, match=table.name):
        RocksStore(tables)


# Who may open it


def test_a_store_is_open_once(store: RocksStore) -> None:
    with pytest.raises(StoreLocked, match=str(store.directory)):
        RocksStore(store.directory)


def test_a_second_process_is_told_that_the_store_is_in_use(store: RocksStore) -> None:
    program = (
        "import sys; from pathlib import Path; from perennial.store.rocks import RocksStore\n"
        "try: RocksStore(Path(sys.argv[1]))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    second = subprocess.run(
        [sys.executable, "-c", program, str(store.directory)], capture_output=True, text=True, check=True
    )
    assert second.stdout.startswith("StoreLocked ")
    assert str(store.directory) in second.stdout
    append_records(store, range(3))
    store.sync()
    assert records_in(store) == 3


def test_a_closed_store_may_be_opened_by_another(tmp_path: Path) -> None:
    for life in range(3):
        with closing(RocksStore(tmp_path)) as store:
            append_records(store, range(life, life + 1))
    assert reopened(tmp_path) == 3


def test_an_unknown_format_is_refused_with_both_numbers(tmp_path: Path) -> None:
    with closing(RocksStore(tmp_path)) as store:
        store._tables["meta"][b"format"] = b"99"
    with pytest.raises(StoreError, match=r"format 99.*reads 2") as caught:
        RocksStore(tmp_path)
    assert str(tmp_path) in str(caught.value)
