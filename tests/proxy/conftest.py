from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy.harness import Rig, make_server
from tests.upstream import Upstream, running_upstream


@pytest.fixture(scope="session")
def upstream() -> Iterator[Upstream]:
    with running_upstream() as running:
        yield running


@pytest.fixture(scope="session")
def rig(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One server for every test that only talks to it."""
    with make_server(tmp_path_factory.mktemp("proxy") / "data") as server, Rig(server, upstream) as running:
        yield running


@pytest.fixture(scope="session")
def hasty(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A server with little patience and few places."""
    settings = {
        "PERENNIAL_PROXY_HEADER_TIMEOUT": "0.3",
        "PERENNIAL_PROXY_IDLE_TIMEOUT": "0.3",
        "PERENNIAL_PROXY_MAX_UPSTREAMS": "2",
        "PERENNIAL_PROXY_URL_TTL": "120",
        "PERENNIAL_PROXY_MAX_URL_TTL": "600",
    }
    server = make_server(tmp_path_factory.mktemp("hasty") / "data", **settings)
    with server, Rig(server, upstream) as running:
        yield running


@pytest.fixture
def own(upstream: Upstream, tmp_path: Path) -> Iterator[Rig]:
    """A server of one's own, to kill, stop and restart at will."""
    with make_server(tmp_path / "data") as server, Rig(server, upstream) as running:
        yield running
