"""A small file system of one's own, which can be filled to the last byte."""

import os
import subprocess
from collections.abc import Iterator
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


def _mounted(place: Path, *options: str) -> None:
    try:
        subprocess.run(["mount", *options, str(place)], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"mounting is not permitted here: {error.stderr.strip()}")


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    """Memory as a disk, and a real file system in a file: they say "full" at different moments."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    place = tmp_path / "disk"
    place.mkdir()
    if request.param == "tmpfs":
        _mounted(place, "-t", "tmpfs", "-o", f"size={64 * MIB}", "tmpfs")
    else:
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(96 * MIB)
        try:
            subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True, capture_output=True)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no ext4 can be made here: {error}")
        _mounted(place, "-o", "loop", str(image))
    try:
        yield SmallDisk(place)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)
