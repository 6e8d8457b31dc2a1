from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path / "data") as world:
        yield world
