import socket
import threading

from perennial.cli.exits import Code
from tests.cli.run import Command
from tests.harness.server import ServerProcess


def test_bench_prints_a_table_and_cleans_up(perennial: Command) -> None:
    ended = perennial("bench", "--seconds", 0.3, "--connections", 4, "--streams", 2)
    assert ended.code == Code.OK, ended
    for words in (b"appends, durable", b"catch-up reads", b"append to live reader", b"p99 ms"):
        assert words in ended.out
    assert perennial.ok("ls", "bench-") == b""


def test_bench_without_a_server(perennial: Command) -> None:
    assert perennial("bench", "--url", "http://127.0.0.1:1").code == Code.UNREACHABLE


def test_bench_of_a_server_that_goes_away(perennial: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up() -> None:
            with listening.accept()[0] as peer:
                peer.recv(1000)

        threading.Thread(target=hang_up, daemon=True).start()
        ended = perennial("bench", "--url", f"http://127.0.0.1:{listening.getsockname()[1]}")
    assert ended.code == Code.UNREACHABLE
    assert "went away" in ended.err


def test_bench_without_a_token(server_with_a_token: ServerProcess, perennial: Command) -> None:
    assert perennial("bench", "--url", server_with_a_token.url).code == Code.DENIED
