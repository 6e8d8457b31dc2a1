from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.extensions.api import Api, Bucket
from tests.harness.server import ServerProcess

# Long enough for a reader to be woken, short enough to wait out.
SETTINGS = {"PERENNIAL_LONG_POLL_TIMEOUT": "0.4"}


@pytest.fixture(scope="session")
def extensions_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("extensions") / "data", SETTINGS) as running:
        yield running


@pytest.fixture
def api(extensions_server: ServerProcess) -> Api:
    return Api(extensions_server.port)


@pytest.fixture
def bucket(api: Api) -> Bucket:
    """A bucket of one's own."""
    return api.new_bucket()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of one's own, to stop and look into; a test may have stopped it already."""
    with ServerProcess(tmp_path / "data", SETTINGS) as running:
        yield running
