"""Being the one process on a data directory, before its store is open."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perennial.store.errors import StoreError, StoreLocked


def in_use(directory: Path) -> StoreLocked:
    return StoreLocked(
        f"{directory} is in use by another process; stop it, or choose another --data directory"
    )


@contextmanager
def claim(directory: Path) -> Iterator[None]:
    """Hold RocksDB's own lock from now on; opening the store here finds it free, and nobody else does.

    Such a lock belongs to a process, not to whoever it forks, and goes when the process closes any of its
    descriptors of the file. So the store must be closed before this ends.
    """
    rocks = directory / "rocks"
    try:
        rocks.mkdir(parents=True, exist_ok=True)
        file = os.open(rocks / "LOCK", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StoreError(f"cannot use {directory} for data: {error.strerror}") from error
    try:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # POSIX lets a system say either
            raise in_use(directory) from None
        yield
    finally:
        os.close(file)
