"""Both clients over a Unix socket: what they do elsewhere, they do there."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perennial.client import Disconnected
from perennial.client.address import Address, server_address
from tests.cli.run import Command
from tests.client.both import SETTINGS, kind, new_client
from tests.harness.server import ServerProcess, SocketServerProcess

__all__ = ["kind"]


@pytest.fixture
def server() -> Iterator[SocketServerProcess]:
    with (
        tempfile.TemporaryDirectory(prefix="perennial-", dir="/tmp") as directory,
        SocketServerProcess(Path(directory) / "data", Path(directory) / "p.sock", SETTINGS) as running,
    ):
        yield running


@pytest.fixture
def client(kind: str, server: ServerProcess) -> Iterator[Any]:
    with new_client(kind, server.url, patience=20.0) as made:
        yield made


def test_snapshots_bootstrap_and_tail(client: Any, server: ServerProcess) -> None:
    command = Command(server.url, server.data.parent)
    client.create_bucket("agents")
    command.ok("create", "s", "-b", "agents", "-t", "text/plain", "-d", "folded")
    command.ok("append", "s", "-b", "agents", "-d", "since")
    client.publish_snapshot("agents", "s", "0000000000000006", b"F" * 300_000)
    assert [stream.stream_id for stream in client.streams("agents")] == ["s"]
    with client.bootstrap("agents", "s") as boot:
        assert boot.snapshot.data == b"F" * 300_000
        assert [message.data for message in boot.messages] == [b"since"]
        tail = iter(boot.tail())
        command.ok("append", "s", "-b", "agents", "-d", "live")
        assert next(tail).data == b"live"
        server.kill()
        server.start()
        command.ok("append", "s", "-b", "agents", "-d", "after a restart")
        assert next(tail).data == b"after a restart"


def test_a_socket_that_is_not_there(kind: str, tmp_path: Path) -> None:
    with new_client(kind, f"unix:{tmp_path}/p.sock") as client, pytest.raises(Disconnected):
        client.bucket("default")


@pytest.mark.parametrize("url", ["unix:/run/p q?#%.sock", "unix:///run/p q?#%.sock"])
def test_a_path_is_taken_letter_by_letter(url: str) -> None:
    address = server_address(url)
    assert address.socket == "/run/p q?#%.sock"
    assert str(address) == "unix:/run/p q?#%.sock"
    assert str(Address("http://127.0.0.1:4437")) == "http://127.0.0.1:4437"


@pytest.mark.parametrize(
    "url", ["unix:", "unix://", "unix://host/p.sock", "unix:/a\0b", "unix", "/run/p.sock"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ValueError, match="unix:/"):
        server_address(url)
