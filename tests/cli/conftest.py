from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.run import Command
from tests.harness.server import ServerProcess


@pytest.fixture
def perennial(shared_server: ServerProcess, tmp_path: Path) -> Command:
    return Command(shared_server.url, tmp_path)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A stream that no other test has."""
    return f"cli-{request.node.name[:80]}".replace("[", "-").replace("]", "")


@pytest.fixture
def server_with_a_token(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "guarded", {"PERENNIAL_AUTH_TOKENS": "secret"}) as running:
        yield running
