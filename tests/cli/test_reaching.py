"""Servers on a Unix socket, and what is said of servers that are not where they were looked for."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from perennial.cli.exits import Code
from tests.cli.fake_server import web_server
from tests.cli.run import Command, Ended
from tests.harness.server import ServerProcess, SocketServerProcess

# One of each way in which commands ask a server.
ASKING = (
    ("ls",),
    ("tail", "x"),
    ("append", "x", "-d", "y"),
    ("rm", "x"),
    ("bench", "--seconds", "0.1"),
)


@pytest.fixture(scope="module")
def behind_a_socket() -> Iterator[SocketServerProcess]:
    with (
        tempfile.TemporaryDirectory(prefix="perennial-", dir="/tmp") as directory,
        SocketServerProcess(Path(directory) / "data", Path(directory) / "p.sock") as server,
    ):
        yield server


@pytest.fixture
def perennial(behind_a_socket: SocketServerProcess, tmp_path: Path) -> Command:
    return Command(behind_a_socket.url, tmp_path)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short path."""
    with tempfile.TemporaryDirectory(prefix="perennial-", dir="/tmp") as directory:
        yield Path(directory)


def assert_unreachable(ended: Ended, *words: str) -> None:
    assert (ended.code, ended.out) == (Code.UNREACHABLE, b""), ended
    assert ended.err.startswith("perennial: ")
    assert "Traceback" not in ended.err
    assert "unix.localhost" not in ended.err, "our own name for it means nothing to anyone"
    for word in words:
        assert word in ended.err, ended


# Unix sockets


def test_every_command_reaches_a_server_on_a_socket(perennial: Command) -> None:
    perennial.ok("create", "a", "-t", "text/plain", "-d", "hello")
    perennial.ok("append", "a", "--lines", stdin=b" from\nbehind\n")
    perennial.ok("fork", "a", "b")
    assert perennial.ok("read", "b") == b"hello from\nbehind\n"
    assert perennial.ok("read", "/v1/stream/a", "--offset", "0000000000000005") == b" from\nbehind\n"
    assert b"text/plain" in perennial.ok("head", "a")
    assert perennial.ok("ls").split() == [b"a", b"b"]
    perennial.ok("snapshot", "a", "-p", "-", "-o", "0000000000000005", stdin=b"HELLO")
    assert perennial.ok("snapshot", "a") == b"HELLO"
    assert perennial.ok("bootstrap", "a") == b"HELLO from\nbehind\n"
    perennial.ok("close", "a", "-d", "!")
    assert perennial.ok("tail", "a", "-o", "0000000000000005") == b" from\nbehind\n!"
    perennial.ok("bucket", "create", "bucket-behind")
    perennial.ok("bucket", "rm", "bucket-behind")
    perennial.ok("rm", "a", "b")
    assert b"appends, durable" in perennial.ok("bench", "--seconds", 0.2, "--connections", 2)


def test_tail_follows_over_a_socket_and_over_a_restart(place: Path, tmp_path: Path) -> None:
    with SocketServerProcess(tmp_path / "data", place / "p.sock") as server:
        perennial = Command(server.url, tmp_path)
        perennial.ok("create", "s", "-t", "text/plain", "-d", "one ")
        with perennial.begin("tail", "s", "-o", "-1") as tail:
            assert tail.stdout is not None
            assert tail.stdout.read(4) == b"one "
            server.kill()
            server.start()
            perennial.ok("close", "s", "-d", "two")
            assert tail.stdout.read() == b"two"
            assert tail.wait(20) == Code.OK


def test_a_backup_is_fetched_over_a_socket(perennial: Command, behind_a_socket: SocketServerProcess) -> None:
    perennial.ok("append", "kept", "--create", stdin=bytes(range(256)) * 4000)
    assert "whole" in perennial("backup", behind_a_socket.url, "copy").err
    with ServerProcess(perennial.directory / "copy") as second:
        assert Command(second.url, perennial.directory).ok("read", "kept") == bytes(range(256)) * 4000


def test_a_socket_is_written_as_the_server_writes_it_or_as_other_tools_do(
    behind_a_socket: SocketServerProcess,
) -> None:
    path = behind_a_socket.path
    beside = Command("", path.parent)
    for url in (f"unix:{path}", f"unix://{path}", f"unix:{path.name}", f"unix:./{path.name}"):
        beside.ok("ls", "--url", url)


def test_whole_urls_stand_for_themselves_whatever_the_socket(
    perennial: Command, shared_server: ServerProcess
) -> None:
    url = f"{shared_server.url}/v1/stream/cli-beside-the-socket"
    perennial.ok("create", url, "-t", "text/plain", "-d", "over there")
    assert perennial.ok("read", url) == b"over there"
    assert perennial("read", "cli-beside-the-socket").code == Code.NOT_FOUND


def test_names_are_completed_over_a_socket(perennial: Command) -> None:
    perennial.ok("create", "completed-behind")
    ended = subprocess.run(
        [sys.executable, "-c", "from perennial.cli import app; app(prog_name='perennial')"],
        capture_output=True,
        text=True,
        env=perennial.environment
        | {
            "_PERENNIAL_COMPLETE": "complete_bash",
            "COMP_WORDS": "perennial read completed",
            "COMP_CWORD": "2",
        },
        check=False,
    )
    assert "completed-behind" in ended.stdout, ended


def test_what_is_no_stream_is_named_with_its_socket(perennial: Command) -> None:
    ended = perennial("read", "/healthz")
    assert ended.code == Code.NOT_FOUND
    assert f"/healthz at {perennial.url} is not a stream" in ended.err


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("unix:", "names no socket"),
        ("unix://", "names no socket"),
        ("unix://run/p.sock", "unix:///run/p.sock"),
        ("/run/p.sock", "unix:/run/perennial.sock"),
    ],
)
def test_what_is_no_address_is_told_how_one_looks(tmp_path: Path, url: str, words: str) -> None:
    for command in ("ls", "bench"):
        ended = Command("", tmp_path)(command, "--url", url)
        assert (ended.code, ended.out) == (Code.USAGE, b"")
        assert repr(url) in ended.err
        assert words in ended.err


@pytest.mark.parametrize("arguments", ASKING, ids=lambda arguments: arguments[0])
def test_a_socket_that_is_not_there(place: Path, arguments: tuple[str, ...]) -> None:
    ended = Command(f"unix:{place}/no.sock", place)(*arguments)
    assert_unreachable(ended, f"unix:{place}/no.sock", "No such file", "PERENNIAL_URL")


def test_a_relative_path_is_told_with_where_it_begins(place: Path) -> None:
    assert_unreachable(Command("unix:no.sock", place)("ls"), "unix:no.sock", str(place))


@pytest.mark.parametrize("arguments", ASKING, ids=lambda arguments: arguments[0])
def test_a_socket_that_a_killed_server_left_behind(place: Path, arguments: tuple[str, ...]) -> None:
    path = place / "left.sock"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))
    ended = Command(f"unix:{path}", place)(*arguments)
    assert_unreachable(ended, f"unix:{path}", "nobody listens there", "Start the server")


def test_what_is_there_and_no_socket(place: Path) -> None:
    (place / "notes.txt").write_text("mine")
    perennial = Command("", place)
    assert_unreachable(perennial("ls", "--url", f"unix:{place}/notes.txt"), "is a file, not a socket")
    assert_unreachable(perennial("ls", "--url", f"unix:{place}"), "is a directory, not a socket")
    assert_unreachable(perennial("ls", "--url", f"unix:{place}/notes.txt/p.sock"), "Not a directory")
    assert (place / "notes.txt").read_text() == "mine"


def test_a_path_too_long_for_a_socket(place: Path) -> None:
    assert_unreachable(Command(f"unix:{place}/{'x' * 120}", place)("ls"), "107 bytes")


def test_a_socket_that_others_may_not_use(place: Path, tmp_path: Path) -> None:
    with SocketServerProcess(tmp_path / "data", place / "p.sock") as server:
        os.chmod(server.path, 0)
        command = [sys.executable, "-m", "perennial", "ls"]
        if os.geteuid() == 0:  # who may do anything, unless that is taken away
            command = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-all", *command]
        environment = Command(server.url, place).environment
        ended = subprocess.run(command, capture_output=True, env=environment, cwd=place, check=False)
        told = Ended(ended.returncode, ended.stdout, ended.stderr.decode())
        assert_unreachable(told, "Permission denied", f"may write to {server.path}")


# The server's own side


def test_a_server_on_a_socket_says_how_to_try_it(behind_a_socket: SocketServerProcess) -> None:
    behind_a_socket.wait_for(lambda: "live=sse" in behind_a_socket.output)
    assert f"curl --unix-socket {behind_a_socket.path} -X PUT  http://localhost/v1/stream/" in (
        behind_a_socket.output
    )


def test_a_socket_that_cannot_be_had_is_told_with_what_to_do(
    behind_a_socket: SocketServerProcess, place: Path
) -> None:
    (place / "notes.txt").write_text("mine")

    def serve(path: Path) -> str:
        (place / "perennial.toml").write_text(f'unix_socket = "{path}"\n')
        ended = Command("", place)("serve", "--data", place / "data")
        assert ended.code == Code.FAILED
        assert f"cannot listen on {path}: " in ended.err
        assert "Traceback" not in ended.err
        return ended.err

    assert "another server listens there" in serve(behind_a_socket.path)
    assert "is left alone" in serve(place / "notes.txt")
    assert "directory must be there" in serve(place / "nowhere" / "p.sock")
    assert "107 bytes" in serve(place / ("x" * 120))
    Command(behind_a_socket.url, place).ok("ls")


# Other addresses


def test_the_server_of_a_whole_url_is_the_one_that_is_missed(tmp_path: Path) -> None:
    ended = Command("http://127.0.0.1:4437", tmp_path)("read", "http://127.0.0.1:1/v1/stream/x")
    assert_unreachable(ended, "is a server running at http://127.0.0.1:1?")
    assert "4437" not in ended.err
    assert "--url" not in ended.err, "it would change nothing"


def test_tls_where_there_is_none(shared_server: ServerProcess, tmp_path: Path) -> None:
    ended = Command(shared_server.url.replace("http://", "https://"), tmp_path)("ls")
    assert_unreachable(ended, "does the server speak TLS?", "http://")


def test_someone_who_hangs_up_without_an_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        perennial = Command(f"http://127.0.0.1:{listening.getsockname()[1]}", tmp_path)
        with perennial.begin("ls") as command:
            with listening.accept()[0] as peer:
                peer.recv(10_000)
            assert command.stderr is not None
            told = command.stderr.read().decode()
            assert command.wait(20) == Code.UNREACHABLE
    assert "https://" in told


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "x"),
        ("append", "x", "-d", "y"),
        ("read", "x"),
        ("tail", "x"),
        ("head", "x"),
        ("close", "x", "-d", "y"),
        ("close", "x"),
        ("rm", "x"),
        ("rm", "--force", "x"),
        ("fork", "source", "x"),
    ],
    ids=" ".join,
)
def test_a_web_server_has_no_streams(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with web_server() as url:
        ended = Command(url, tmp_path)(*arguments)
    assert (ended.code, ended.out) == (Code.NOT_FOUND, b""), ended
    assert f"{url}/v1/stream/x is not a stream" in ended.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls",),
        ("ls", "--long"),
        ("bootstrap", "x"),
        ("snapshot", "x"),
        ("snapshot", "x", "-p", "-", "-o", "0000000000000001"),
        ("bucket", "create", "abcd"),
        ("bucket", "show", "abcd"),
        ("bucket", "rm", "abcd"),
        ("backup", "URL", "b"),
    ],
    ids=" ".join,
)
def test_a_web_server_is_not_taken_for_perennial(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with web_server() as url:
        ended = Command(url, tmp_path)(*(url if word == "URL" else word for word in arguments))
    assert (ended.code, ended.out) == (Code.FAILED, b""), ended
    assert url in ended.err
    assert "is it Perennial?" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "unix:/nowhere/p.sock"])
def test_a_backup_without_a_server_offers_only_what_it_has(tmp_path: Path, url: str) -> None:
    ended = Command("", tmp_path)("backup", url, "copy")
    assert_unreachable(ended, url, "its data directory")
    assert "--url" not in ended.err
    assert "PERENNIAL_URL" not in ended.err
    assert not (tmp_path / "copy").exists()


def test_a_backup_of_what_is_neither_a_store_nor_a_url(tmp_path: Path) -> None:
    ended = Command("", tmp_path)("backup", "localhost:4437", "copy")
    assert ended.code == Code.NOT_FOUND
    assert "there is no store in localhost:4437" in ended.err
    assert "http://, https://, unix:" in ended.err
