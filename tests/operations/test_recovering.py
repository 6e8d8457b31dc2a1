"""What is answered while the store opens, who answers it, and who may not.

Stores here have a log that takes a while to replay. Where that is not sure to be long enough, the server is
stopped in the middle of it: whoever answers then does so without it.
"""

import os
import shutil
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from perennial.cli.exits import Code
from tests.cli.run import Command
from tests.harness.server import ServerProcess
from tests.operations.servers import TEXT, OperatedServer
from tests.operations.test_transport import make_certificate

# Under 16 KiB, so that the feed holds it too; together just under what RocksDB would write to tables.
MESSAGE = os.urandom(15_000)
MESSAGES = 1500
ANSWERED_503 = "requests are answered 503"


@pytest.fixture(scope="module")
def crash_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a server that crashed: everything is in the log, nothing in the tables."""
    server = ServerProcess(tmp_path_factory.mktemp("crashed") / "data").start()
    with httpx.Client(base_url=server.url) as client:
        client.put("/v1/stream/s", headers=TEXT).raise_for_status()
        for _ in range(MESSAGES):
            client.post("/v1/stream/s", headers=TEXT, content=MESSAGE).raise_for_status()
    server.kill()
    assert sum(log.stat().st_size for log in (server.data / "wal").glob("*.log")) > 2 * MESSAGES * 15_000
    return server.data


@pytest.fixture
def crashed(crash_site: Path, tmp_path: Path) -> ServerProcess:
    """A copy of one's own, about to be started again on a port that is known before."""
    server = ServerProcess(shutil.copytree(crash_site, tmp_path / "data"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.port = listener.getsockname()[1]
    return server


@contextmanager
def starting(server: ServerProcess) -> Iterator[Future[ServerProcess]]:
    """The server once it answers, whatever it answers; the future is done when it is ready."""
    before = server.output.count(ANSWERED_503)
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(server.start)
        try:
            server.wait_for(lambda: server.output.count(ANSWERED_503) > before)
            yield started
        finally:
            started.exception()  # wait, and leave failing to whoever asks for the result


@contextmanager
def stopped_while_starting(server: ServerProcess) -> Iterator[Future[ServerProcess]]:
    with starting(server) as started:
        pid = server.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            assert not started.done(), "the log was replayed too fast to be looked at"
            yield started
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_a_recovering_server_is_alive_and_not_ready(crashed: ServerProcess) -> None:
    url = f"http://127.0.0.1:{crashed.port}"
    with stopped_while_starting(crashed) as started:
        assert httpx.get(f"{url}/healthz").text == "ok\n"
        ready = httpx.get(f"{url}/readyz")
        assert ready.status_code == 503
        assert ready.json() == {"ready": False, "reasons": ["recovering the store"]}
        answers = [
            httpx.get(f"{url}/v1/stream/s"),
            httpx.post(f"{url}/v1/stream/s", headers=TEXT, content=b"x"),
            httpx.put(f"{url}/ds/b/s/snapshot/0", headers=TEXT, content=bytes(5_000_000)),
            httpx.post(f"{url}/v1/stream/s", headers=TEXT, content=iter([b"in", b"chunks"])),
        ]
        for answer in answers:
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "RECOVERING"
            assert "recovering the store" in answer.json()["error"]["message"]
            assert answer.headers["connection"] == "close", "the next request shall find the server itself"
        for answer in [ready, *answers]:
            assert int(answer.headers["retry-after"]) > 0
            assert answer.headers["cache-control"] == "no-store"
        assert httpx.request("BREW", url).status_code == 501
        # An EventSource gives up for good on any answer but 200, and tries again on none.
        for query, headers in (("?offset=-1&live=sse", {}), ("", {"Accept": "text/event-stream"})):
            with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
                httpx.get(f"{url}/v1/stream/s{query}", headers=headers)
    started.result()
    assert httpx.get(f"{url}/readyz").status_code == 200
    tail = httpx.head(f"{url}/v1/stream/s").headers["stream-next-offset"]
    assert int(tail) == MESSAGES * len(MESSAGE), "and none of the writes it refused has happened"
    crashed.stop()


def test_whoever_keeps_asking_is_answered_all_the_way(crashed: ServerProcess) -> None:
    statuses = []
    with starting(crashed) as started:
        while not started.done() or 200 not in statuses:
            ready = started.done()
            statuses.append(httpx.get(f"http://127.0.0.1:{crashed.port}/readyz").status_code)
            assert statuses[-1] == 200 or not ready, "once it says that it listens, it serves"
    assert statuses == sorted(statuses, reverse=True)
    assert set(statuses) == {503, 200}
    crashed.stop()


def test_nobody_is_left_behind_when_it_is_killed_while_recovering(crashed: ServerProcess) -> None:
    with stopped_while_starting(crashed) as started:
        os.kill(crashed.pid, signal.SIGKILL)
        with pytest.raises(RuntimeError):
            started.result()  # which has read the output to its end, so nobody holds it any more
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://127.0.0.1:{crashed.port}/healthz")
    with crashed:
        assert httpx.get(f"{crashed.url}/readyz").status_code == 200


def test_a_second_process_on_a_recovering_store_is_refused_and_answers_nobody(
    crashed: ServerProcess, tmp_path: Path
) -> None:
    with stopped_while_starting(crashed) as started:
        ended = Command("", tmp_path)("serve", "--port", 0, "--data", crashed.data)
        assert ended.code == Code.FAILED
        assert f"{crashed.data} is in use by another process" in ended.err
        assert ANSWERED_503 not in ended.err
    started.result()
    crashed.stop()


def test_a_taken_port_is_told_before_the_data_is_touched(server: ServerProcess, tmp_path: Path) -> None:
    ended = Command("", tmp_path)("serve", "--port", server.port, "--data", tmp_path / "untouched")
    assert ended.code == Code.FAILED
    assert f"cannot listen on 127.0.0.1 port {server.port}" in ended.err
    assert not (tmp_path / "untouched").exists()


def test_a_taken_unix_socket_stays_with_whoever_has_it(tmp_path: Path) -> None:
    path = f"/tmp/perennial-{os.getpid()}-taken.sock"  # a socket's path may be no longer than a hundred bytes
    with OperatedServer(tmp_path, f'unix_socket = "{path}"\n'):
        config = tmp_path / "perennial.toml"
        ended = Command("", tmp_path)("serve", "--config", config, "--data", tmp_path / "untouched")
        assert ended.code == Code.FAILED
        assert f"cannot listen on {path}" in ended.err
        assert not (tmp_path / "untouched").exists()
        with httpx.Client(transport=httpx.HTTPTransport(uds=path)) as client:
            assert client.get("http://perennial/readyz").status_code == 200


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = Command("", tmp_path)("serve", "--port", 0, "--data", tmp_path / "file")
    assert ended.code == Code.FAILED
    assert f"cannot use {tmp_path / 'file'} for data" in ended.err
    assert "Traceback" not in ended.err


def test_a_recovering_server_speaks_tls_if_it_should(crashed: ServerProcess, tmp_path: Path) -> None:
    make_certificate(tmp_path, "recovering")
    config = f'tls_cert = "{tmp_path / "cert.pem"}"\ntls_key = "{tmp_path / "key.pem"}"\n'
    server = OperatedServer(tmp_path, config)
    server.port = crashed.port
    with stopped_while_starting(server) as started:
        url = f"https://127.0.0.1:{server.port}"
        assert httpx.get(f"{url}/readyz", verify=False).status_code == 503
    started.result()
    server.stop()
