"""The same proxy behind an ASGI server."""

from pathlib import Path

import httpx
import pytest

from perennial.client import ProxyClient
from perennial.protocol.frames import FrameType
from tests.harness.server import AsgiServerProcess
from tests.proxy.harness import SETTINGS, TOKEN, Rig
from tests.upstream import HANG, Upstream


def test_create_append_abort_and_restart(upstream: Upstream, tmp_path: Path) -> None:
    server = AsgiServerProcess(tmp_path / "data", SETTINGS)
    with server, Rig(server, upstream) as rig, ProxyClient(rig.url, TOKEN) as client:
        with client.stream("POST", rig.script([b"one ", 0.1, b"two"]), json={}) as response:
            assert response.read() == b"one two"
        second = client.append(response.url, "GET", rig.script([b"more", HANG]))
        assert next(iter(second)) == b"more"
        second.abort()
        assert rig.kept(response.url, 2).ending is FrameType.ABORT
        third = client.append(response.url, "GET", rig.script([b"more", HANG]))
        assert next(iter(third)) == b"more"
        server.restart()
        assert "stopped" in rig.kept(response.url, 3).failure.message


def test_a_client_that_leaves_takes_its_upstream_request_along(upstream: Upstream, tmp_path: Path) -> None:
    with AsgiServerProcess(tmp_path / "data", SETTINGS) as server, Rig(server, upstream) as rig:
        url = rig.script([], path="/allowed/asgi-left", before_headers=[HANG])
        headers = {"Authorization": f"Bearer {TOKEN}", "Upstream-URL": url, "Upstream-Method": "GET"}
        with pytest.raises(httpx.ReadTimeout):
            rig.http.post(rig.url, headers=headers, timeout=0.3)
        assert upstream.wait_for("/allowed/asgi-left").peer_gone.wait(10)
