"""Making written commits durable: fdatasync of RocksDB's write-ahead log, by us.

RocksDB could sync by itself, but its Python binding holds the interpreter's lock meanwhile and the event
loop would stand still; `os.fdatasync` lets it run. The log lives in a directory of its own so that we can
find its files. RocksDB starts a new file now and then: that file's name must be made durable as well.

A side file, `SYNCED`, remembers how long the log files were when they were last synced, and the number of
the last change in them. A log that is shorter at start or has a damaged length, or a store that has come back
with fewer changes, has lost acknowledged data in a way that the log's own checksums cannot see.
"""

import os
import re
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from perennial.store.errors import StoreCorrupt
from perennial.store.wal_records import find_broken_record

_LOG_FILE = re.compile(r"([0-9]+)\.log")
_MARK = struct.Struct("<QQ")  # the last change, the number of log files; then, for each file:
_MARKED_LOG = struct.Struct("<QQ")  # its number and length


class WriteAheadLog:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._mark_path = directory / "SYNCED"
        self._current = -1
        self._file: int | None = None
        self._directory_fd: int | None = None
        self._mark_fd: int | None = None
        # Of every log file that is there: as much as is on disk for sure.
        self._lengths: dict[int, int] = {}
        # The number of the newest change that was ever acknowledged; 0 before the first sync.
        self._acknowledged = 0
        # Logs up to this number may end in a record that was never finished: RocksDB does not go on in them.
        # Of these, what was marked before is all that can be vouched for.
        self._torn = -1
        # The sync that is under way: its last change, the lengths it makes sure of, and the files new to us.
        self._begun: tuple[int, dict[int, int], list[tuple[int, int]]] | None = None

    def verify(self) -> None:
        """Before the store opens: is every byte that was ever acknowledged still there?"""
        try:
            self._torn = max(self._numbers(), default=-1)
            mark = self._mark_path.read_bytes()
            self._acknowledged, count = _MARK.unpack_from(mark)
            logs = [_MARKED_LOG.unpack_from(mark, _MARK.size + _MARKED_LOG.size * i) for i in range(count)]
        except (FileNotFoundError, struct.error):
            return  # a new store, or one whose first sync never happened
        self._lengths = dict(logs)
        for number, length in logs:
            # A missing file is fine: RocksDB removes logs whose contents have reached its tables.
            if self._path(number).exists():
                self._verify_log(self._path(number), length)

    def _verify_log(self, path: Path, length: int) -> None:
        instead = f"Restore a backup, or remove {self._mark_path} to start with what is left"
        if (size := path.stat().st_size) < length:
            raise StoreCorrupt(
                f"{path} has {size} bytes but {length} were acknowledged: data was lost after it was "
                f"written. {instead}"
            )
        if (broken := find_broken_record(path, length)) is not None:
            raise StoreCorrupt(
                f"{path} is damaged at byte {broken}: what was acknowledged there cannot be read. {instead}"
            )

    @property
    def has_acknowledged(self) -> bool:
        """Has anything ever been acknowledged from this directory?"""
        return self._acknowledged > 0

    def verify_recovered(self, last_change: int) -> None:
        """After the store has opened: has everything that was ever acknowledged come back?"""
        if last_change < self._acknowledged:
            raise StoreCorrupt(
                f"{self._directory} has lost data: {self._acknowledged} changes were acknowledged, "
                f"{last_change} are left. Restore a backup, or remove {self._mark_path} to start with those"
            )

    def open(self, last_change: int) -> None:
        self._directory_fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        self._mark_fd = os.open(self._mark_path, os.O_RDWR | os.O_CREAT, 0o644)
        self.sync(last_change)

    def sync(self, last_change: int) -> None:
        """Everything written to the log before this call, up to `last_change`, is on disk when it returns."""
        self.begin_sync(last_change)()
        self.end_sync()

    def begin_sync(self, last_change: int) -> Callable[[], None]:
        """See what is there to be synced. The disk is waited for in the function returned, and nothing else
        is done there: a thread that calls it needs the interpreter's lock only to begin and to return."""
        self._abandon_sync()
        lengths = {}
        fresh = []
        for number in sorted(self._numbers()):
            if number < self._current:
                lengths[number] = self._lengths.get(number, 0)  # finished, and synced when it was
            elif number == self._current and self._file is not None:
                lengths[number] = self._whole_length(number, self._file)
            else:
                # The log has moved on to a new file: bring over its length, name and contents.
                try:
                    file = os.open(self._path(number), os.O_RDONLY)
                except FileNotFoundError:
                    continue  # come and gone since we looked: RocksDB has its contents in its tables
                lengths[number] = self._whole_length(number, file)
                fresh.append((number, file))
        known = self._file if self._current in lengths else None
        self._begun = (last_change, lengths, fresh)
        return partial(self._wait_for_disk, known, [file for _, file in fresh])

    def write_failed(self) -> None:
        """Part of a record may have got into the log."""
        try:
            numbers = self._numbers()
        except OSError:  # no more files may be opened, say
            numbers = [self._current, *self._lengths]
        self._torn = max(numbers, default=-1)

    def _whole_length(self, number: int, file: int) -> int:
        return self._lengths.get(number, 0) if number <= self._torn else os.fstat(file).st_size

    def end_sync(self) -> None:
        """The disk has been waited for."""
        assert self._begun is not None, "begin_sync() precedes end_sync()"
        last_change, self._lengths, fresh = self._begun
        self._begun = None
        for number, file in fresh:
            if self._file is not None:
                os.close(self._file)
            self._file, self._current = file, number
        self._mark(last_change)

    def _abandon_sync(self) -> None:
        """Of one that failed, nothing is known: its new files will be new again."""
        if self._begun is not None:
            for _, file in self._begun[2]:
                os.close(file)
            self._begun = None

    def _wait_for_disk(self, known: int | None, fresh: list[int]) -> None:
        if known is not None:
            os.fdatasync(known)
        for file in fresh:
            os.fsync(file)
            assert self._directory_fd is not None, "open() precedes sync()"
            os.fsync(self._directory_fd)

    def size(self) -> int:
        """Bytes in all log files that RocksDB still keeps."""
        total = 0
        for number in self._numbers():
            with suppress(FileNotFoundError):  # removed just now
                total += self._path(number).stat().st_size
        return total

    def close(self) -> None:
        self._abandon_sync()
        for fd in (self._file, self._directory_fd, self._mark_fd):
            if fd is not None:
                os.close(fd)
        self._file = self._directory_fd = self._mark_fd = None

    def _mark(self, last_change: int) -> None:
        # Measured before the sync and written after it, and not synced itself: a mark may claim less than
        # is on disk, never more.
        if self._mark_fd is not None:
            logs = b"".join(_MARKED_LOG.pack(*log) for log in self._lengths.items())
            os.pwrite(self._mark_fd, _MARK.pack(last_change, len(self._lengths)) + logs, 0)

    def _numbers(self) -> list[int]:
        matches = map(_LOG_FILE.fullmatch, os.listdir(self._directory))
        return [int(match[1]) for match in matches if match]

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:06d}.log"
