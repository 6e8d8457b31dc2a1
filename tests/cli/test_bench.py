from perennial.cli.exits import Code
from tests.cli.run import Command


def test_bench_prints_a_table_and_cleans_up(perennial: Command) -> None:
    ended = perennial("bench", "--seconds", 0.3, "--connections", 4, "--streams", 2)
    assert ended.code == Code.OK, ended
    for words in (b"appends, durable", b"catch-up reads", b"append to live reader", b"p99 ms"):
        assert words in ended.out
    assert perennial.ok("ls", "bench-") == b""


def test_bench_without_a_server(perennial: Command) -> None:
    assert perennial("bench", "--url", "http://127.0.0.1:1").code == Code.UNREACHABLE
