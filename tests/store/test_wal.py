"""The log's files through our own eyes: which are synced, when, and what is remembered of it."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from perennial.store.errors import StoreCorrupt
from perennial.store.rocks import RocksStore
from perennial.store.wal import WriteAheadLog
from tests.store.damage import append_records, newest_log, records_in

RECORD = b"\0\0\0\0\1\0\1x"
"""As a log has them, but for the checksum: a length of one, the type, one byte."""


class Disk:
    """Writes down every sync, by the name of the file."""

    def __init__(self) -> None:
        self.synced: list[tuple[str, str]] = []
        self.fail = False

    def watch(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        real = getattr(os, name)

        def sync(fd: int) -> None:
            if self.fail:
                raise OSError(5, "Input/output error")
            self.synced.append((name, Path(os.readlink(f"/proc/self/fd/{fd}")).name))
            real(fd)

        monkeypatch.setattr(os, name, sync)

    def take(self) -> list[tuple[str, str]]:
        taken, self.synced = self.synced, []
        return taken


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    disk.watch("fsync", monkeypatch)
    disk.watch("fdatasync", monkeypatch)
    return disk


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "wal"
    directory.mkdir()
    return directory


@pytest.fixture
def log(directory: Path, disk: Disk) -> Iterator[WriteAheadLog]:
    log = WriteAheadLog(directory)
    yield log
    log.close()


def grow(directory: Path, number: int, data: bytes = b"x") -> Path:
    path = directory / f"{number:06d}.log"
    with path.open("ab") as file:
        file.write(data)
    return path


def refuse() -> list[int]:
    raise OSError(24, "Too many open files")


def read_mark(directory: Path) -> tuple[int, dict[int, int]]:
    data = (directory / "SYNCED").read_bytes()
    last_change, count = struct.unpack_from("<QQ", data)
    logs = struct.unpack_from(f"<{2 * count}Q", data, 16)
    return last_change, dict(zip(logs[::2], logs[1::2], strict=True))


def write_mark(directory: Path, last_change: int, logs: dict[int, int]) -> None:
    numbers = [number for log in logs.items() for number in log]
    data = struct.pack(f"<QQ{len(numbers)}Q", last_change, len(logs), *numbers)
    (directory / "SYNCED").write_bytes(data)


def test_the_first_file_is_synced_with_its_length_and_its_name(
    log: WriteAheadLog, directory: Path, disk: Disk
) -> None:
    grow(directory, 4)
    log.open(1)
    assert disk.take() == [("fsync", "000004.log"), ("fsync", "wal")]


def test_a_known_file_needs_its_data_only(log: WriteAheadLog, directory: Path, disk: Disk) -> None:
    grow(directory, 4)
    log.open(1)
    disk.take()
    grow(directory, 4)
    log.sync(2)
    log.sync(2)
    assert disk.take() == [("fdatasync", "000004.log")] * 2


def test_a_new_file_is_found_and_the_old_one_finished(
    log: WriteAheadLog, directory: Path, disk: Disk
) -> None:
    grow(directory, 4)
    log.open(1)
    disk.take()
    grow(directory, 4)
    grow(directory, 9)
    log.sync(2)
    assert disk.take() == [("fdatasync", "000004.log"), ("fsync", "000009.log"), ("fsync", "wal")]
    log.sync(2)
    assert disk.take() == [("fdatasync", "000009.log")]


def test_several_new_files_are_all_synced_in_order(log: WriteAheadLog, directory: Path, disk: Disk) -> None:
    grow(directory, 4)
    log.open(1)
    disk.take()
    for number in (1_000_000, 12, 8):
        grow(directory, number)
    log.sync(2)
    files = [name for how, name in disk.take() if name.endswith(".log")]
    assert files == ["000004.log", "000008.log", "000012.log", "1000000.log"]


def test_a_file_that_is_gone_before_it_is_synced_is_no_failure(
    log: WriteAheadLog, directory: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB removes a log, from a thread of its own, when its tables hold what was in it."""
    grow(directory, 4)
    log.open(1)
    disk.take()
    grow(directory, 12)
    monkeypatch.setattr(log, "_numbers", lambda: [4, 8, 12])
    log.sync(2)
    assert disk.take() == [("fdatasync", "000004.log"), ("fsync", "000012.log"), ("fsync", "wal")]
    assert read_mark(directory) == (2, {4: 1, 12: 1})


def test_files_that_are_no_logs_are_left_alone(log: WriteAheadLog, directory: Path, disk: Disk) -> None:
    for name in ("LOG", "000001.log.bak", "x.log", "archive", "000001.sst"):
        (directory / name).write_bytes(b"x")
    grow(directory, 4)
    log.open(1)
    assert disk.take() == [("fsync", "000004.log"), ("fsync", "wal")]


def test_the_mark_says_how_much_of_which_file_is_safe(
    log: WriteAheadLog, directory: Path, disk: Disk
) -> None:
    grow(directory, 4, b"12345")
    log.open(7)
    assert read_mark(directory) == (7, {4: 5})
    grow(directory, 4, b"678")
    assert read_mark(directory) == (7, {4: 5}), "not before the sync"
    log.sync(8)
    assert read_mark(directory) == (8, {4: 8})
    grow(directory, 9, b"9")
    log.sync(9)
    assert read_mark(directory) == (9, {4: 8, 9: 1})
    (directory / "000004.log").unlink()
    log.sync(9)
    assert read_mark(directory) == (9, {9: 1})


def test_a_sync_that_fails_marks_nothing(log: WriteAheadLog, directory: Path, disk: Disk) -> None:
    grow(directory, 4, b"12345")
    log.open(7)
    grow(directory, 4, b"678")
    disk.fail = True
    with pytest.raises(OSError, match="Input/output"):
        log.sync(8)
    assert read_mark(directory) == (7, {4: 5})


def test_a_new_file_whose_sync_failed_is_new_again_and_held_open_once(
    log: WriteAheadLog, directory: Path, disk: Disk
) -> None:
    grow(directory, 4)
    log.open(1)
    opened = len(os.listdir("/proc/self/fd"))
    grow(directory, 9)
    disk.fail = True
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output"):
            log.sync(2)
    disk.fail = False
    disk.take()
    log.sync(2)
    assert disk.take() == [("fdatasync", "000004.log"), ("fsync", "000009.log"), ("fsync", "wal")]
    assert len(os.listdir("/proc/self/fd")) == opened


def test_every_log_is_verified_against_its_mark(directory: Path) -> None:
    path = grow(directory, 4, RECORD + RECORD)
    grow(directory, 9, RECORD)
    for records in (0, 1, 2):
        write_mark(directory, 1, {4: records * len(RECORD), 9: len(RECORD)})
        WriteAheadLog(directory).verify()
    write_mark(directory, 1, {4: 17, 9: len(RECORD)})
    with pytest.raises(StoreCorrupt, match=f"{path} has 16 bytes but 17 were acknowledged"):
        WriteAheadLog(directory).verify()
    write_mark(directory, 1, {4: 15, 9: len(RECORD)})
    with pytest.raises(StoreCorrupt, match=f"{path} is damaged at byte 8"):
        WriteAheadLog(directory).verify()
    path.unlink()
    WriteAheadLog(directory).verify()  # as it may be once the tables hold its data


def test_the_torn_end_of_a_log_is_never_vouched_for(directory: Path) -> None:
    """Neither what a crash left in a log of a former life, nor what a failed write left in this one."""
    grow(directory, 4, RECORD + b"torn")
    write_mark(directory, 1, {4: len(RECORD)})
    log = WriteAheadLog(directory)
    log.verify()
    grow(directory, 9, RECORD)
    log.open(2)
    assert read_mark(directory) == (2, {4: len(RECORD), 9: len(RECORD)})
    grow(directory, 9, b"torn")
    log.write_failed()
    log.sync(2)
    assert read_mark(directory) == (2, {4: len(RECORD), 9: len(RECORD)})
    grow(directory, 11, RECORD + RECORD)
    log.sync(3)
    assert read_mark(directory) == (3, {4: len(RECORD), 9: len(RECORD), 11: 2 * len(RECORD)})
    log.close()
    WriteAheadLog(directory).verify()


def test_a_failed_write_is_noted_even_when_the_directory_cannot_be_read(
    log: WriteAheadLog, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(directory, 9, RECORD)
    log.open(1)
    grow(directory, 9, b"torn")
    with monkeypatch.context() as broken:
        broken.setattr(log, "_numbers", refuse)
        log.write_failed()
    log.sync(1)
    assert read_mark(directory) == (1, {9: len(RECORD)})


@pytest.mark.parametrize("mark", [None, b"", b"half a mark"])
def test_without_a_mark_there_is_nothing_to_verify(directory: Path, mark: bytes | None) -> None:
    grow(directory, 4)
    if mark is not None:
        (directory / "SYNCED").write_bytes(mark)
    log = WriteAheadLog(directory)
    log.verify()
    log.verify_recovered(0)
    assert not log.has_acknowledged


def test_fewer_changes_than_were_acknowledged_are_an_error(directory: Path) -> None:
    write_mark(directory, 100, {})
    log = WriteAheadLog(directory)
    log.verify()
    log.verify_recovered(100)
    log.verify_recovered(101)
    with pytest.raises(StoreCorrupt, match="100 changes were acknowledged, 99 are left"):
        log.verify_recovered(99)


def test_a_sync_of_the_store_reaches_every_log_rocksdb_has_begun(tmp_path: Path, disk: Disk) -> None:
    store = RocksStore(tmp_path)
    append_records(store, range(3))
    store.sync()
    before = newest_log(tmp_path)
    disk.take()
    store._tables["blocks"].flush()  # RocksDB goes on in a new file
    append_records(store, range(3, 6))
    store.sync()
    after = newest_log(tmp_path)
    assert after != before
    synced = disk.take()
    assert ("fsync", after.name) in synced
    assert synced.index(("fsync", "wal")) > synced.index(("fsync", after.name))
    assert records_in(store) == 6
    store.close()


def test_no_log_descriptors_are_left_open(tmp_path: Path) -> None:
    def open_logs() -> list[str]:
        descriptors = Path("/proc/self/fd").iterdir()
        names = [os.readlink(path) for path in descriptors if path.is_symlink() and path.exists()]
        return [name for name in names if str(tmp_path) in name]

    store = RocksStore(tmp_path)
    for number in range(5):
        append_records(store, range(number, number + 1))
        store._tables["blocks"].flush()
        store.sync()
    ours = [name for name in open_logs() if name.endswith("(deleted)")]
    assert len(ours) <= 1
    store.close()
    assert open_logs() == []
