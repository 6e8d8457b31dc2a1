from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perennial.store.interface import Store
from perennial.store.rocks import RocksStore

ENGINES: dict[str, Callable[[Path], Store]] = {"rocks": RocksStore}


@pytest.fixture(params=ENGINES)
def open_store(request: pytest.FixtureRequest) -> Callable[[Path], Store]:
    """Every engine in turn."""
    return ENGINES[request.param]


@pytest.fixture
def store(open_store: Callable[[Path], Store], tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(tmp_path / "data")) as store:
        yield store
