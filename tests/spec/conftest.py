from collections.abc import Callable, Iterator

import pytest

from tests.harness.server import ServerProcess
from tests.spec.streams import Stream

LONG_POLL_SECONDS = 0.5
CHUNK_BYTES = 1024
TOKEN = "a service token"


@pytest.fixture(scope="session")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """For everyone who can connect; it waits briefly and reads in small chunks."""
    settings = {
        "PERENNIAL_LONG_POLL_TIMEOUT": str(LONG_POLL_SECONDS),
        "PERENNIAL_MAX_CHUNK": str(CHUNK_BYTES),
        "PERENNIAL_MAX_BODY": str(1 << 20),
    }
    with ServerProcess(tmp_path_factory.mktemp("open") / "data", settings) as server:
        yield server


@pytest.fixture(scope="session")
def guarded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """For those with a token; its event streams do not grow old."""
    settings = {"PERENNIAL_AUTH_TOKENS": TOKEN, "PERENNIAL_SSE_MAX_AGE": "0.3"}
    with ServerProcess(tmp_path_factory.mktemp("guarded") / "data", settings) as server:
        yield server


@pytest.fixture
def new_stream(open_server: ServerProcess, request: pytest.FixtureRequest) -> Callable[[], Stream]:
    """Streams that nobody else uses, not created yet."""
    return lambda: Stream.unique(open_server.port, request.node.name)


@pytest.fixture
def stream(new_stream: Callable[[], Stream]) -> Stream:
    return new_stream()


@pytest.fixture
def guarded_stream(guarded_server: ServerProcess, request: pytest.FixtureRequest) -> Stream:
    stream = Stream.unique(guarded_server.port, request.node.name)
    stream.common["Authorization"] = f"Bearer {TOKEN}"
    return stream
