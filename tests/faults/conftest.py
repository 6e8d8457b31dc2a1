import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.small_disk import MIB, SmallDisk, mount


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    """Memory as a disk, and a real file system in a file: they say "full" at different moments."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    place = tmp_path / "disk"
    place.mkdir()
    if request.param == "tmpfs":
        mount(place, "-t", "tmpfs", "-o", f"size={64 * MIB}", "tmpfs")
    else:
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(96 * MIB)
        try:
            subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True, capture_output=True)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no ext4 can be made here: {error}")
        mount(place, "-o", "loop", str(image))
    try:
        yield SmallDisk(place)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)
