from collections.abc import Iterator

import pytest

from tests.client.cutting import CuttingProxy, cutting_proxy
from tests.proxy.conftest import own, rig, upstream
from tests.proxy.harness import Rig

__all__ = ["own", "rig", "upstream"]


@pytest.fixture
def cutter(rig: Rig) -> Iterator[CuttingProxy]:
    with cutting_proxy(rig.server.port) as running:
        yield running
