"""A small file system of one's own, which can be filled to the last byte."""

import os
import subprocess
from pathlib import Path

import pytest

MIB = 1 << 20


class SmallDisk:
    """`fill` takes all its room but so much, `free` gives it back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int) -> None:
        with self._ballast.open("wb") as ballast:
            while (excess := self.free_bytes - leave) > 0:
                try:
                    ballast.write(bytes(min(excess, MIB)))
                    ballast.flush()
                except OSError:
                    break

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


def mount(place: Path, *options: str) -> None:
    """Skips the test where this is not possible."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    try:
        subprocess.run(["mount", *options, str(place)], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"mounting is not permitted here: {error.stderr.strip()}")
