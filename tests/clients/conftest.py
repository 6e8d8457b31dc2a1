import uuid

import pytest

from tests.harness.server import ServerProcess


@pytest.fixture
def url(shared_server: ServerProcess) -> str:
    """Of a stream that does not exist yet."""
    return f"{shared_server.url}/v1/stream/clients/{uuid.uuid4()}"
