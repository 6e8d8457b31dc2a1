from collections.abc import Iterator

import pytest

from tests.harness.server import ServerProcess
from tests.harness.wire import Wire
from tests.robustness.victims import JSON, MAX_BODY, ROOT, TEXT, Streams

SETTINGS = {
    "PERENNIAL_MAX_BODY": str(MAX_BODY),
    # Live reads end soon, so that a test can wait for the end of whatever it caused.
    "PERENNIAL_LONG_POLL_TIMEOUT": "0.05",
    "PERENNIAL_SSE_MAX_AGE": "0.05",
}


@pytest.fixture(scope="session")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with (
        ServerProcess(tmp_path_factory.mktemp("victim") / "data", SETTINGS) as server,
        Wire(server.port) as wire,
    ):
        assert wire.request("PUT", f"{ROOT}text", TEXT, b"before").status == 201
        assert wire.request("PUT", f"{ROOT}json", JSON, b'["before"]').status == 201
        yield server
    assert "Traceback" not in server.output, server.output
    assert " ERROR " not in server.output, server.output


@pytest.fixture
def streams(victim: ServerProcess) -> Iterator[Streams]:
    found = Streams(victim.port, "text", "json")
    before = found.look()
    yield found
    assert found.look() == before, "a refused request changed a stream"
    assert "Traceback" not in victim.output, victim.output
