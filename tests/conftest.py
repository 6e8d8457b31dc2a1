import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.server import ServerProcess
from tests.properties import profiles

profiles.load()


def pytest_configure() -> None:
    # A shell script's background jobs ignore Ctrl-C, and so would every process that the tests interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: workers that share the files would end up waiting for a late one."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of one's own, to kill, stop and restart at will."""
    with ServerProcess(tmp_path / "data") as running:
        yield running


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for every test that only talks to it; choose stream names nobody else would."""
    with ServerProcess(tmp_path_factory.mktemp("shared") / "data") as running:
        yield running
