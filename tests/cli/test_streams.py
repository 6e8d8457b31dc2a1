"""`create`, `head`, `ls`, `close`, `rm`, `fork`, `bucket`, and the exit codes they share."""

import json
import os
import socket

import pytest

from perennial.cli.exits import Code
from tests.cli.run import Command


def test_creating_is_repeatable(perennial: Command, name: str) -> None:
    assert "created" in perennial("create", name, "-t", "text/plain").err
    again = perennial("create", name, "-t", "text/plain")
    assert (again.code, again.out) == (Code.OK, b"")
    assert "already" in again.err


def test_creating_differently_is_a_conflict(perennial: Command, name: str) -> None:
    perennial.ok("create", name, "-t", "text/plain")
    assert perennial("create", name, "-t", "text/html").code == Code.CONFLICT
    assert perennial("create", name, "-t", "text/plain", "--new").code == Code.CONFLICT


def test_head_tells_what_is_known(perennial: Command, name: str) -> None:
    perennial.ok("create", name, "-t", "text/plain", "--ttl", 100, "-d", "hello")
    assert json.loads(perennial.ok("head", name, "--json")) == {
        "content_type": "text/plain",
        "next_offset": "0000000000000005",
        "closed": False,
        "ttl_seconds": 100,
        "expires_at": None,
        "etag": None,
    }
    assert b"next-offset   0000000000000005\n" in perennial.ok("head", name)


def test_listing_prints_names_and_nothing_else(perennial: Command, name: str) -> None:
    for suffix in ("b", "a"):
        perennial.ok("create", f"{name}/{suffix}")
    assert perennial.ok("ls", f"{name}/").decode().split() == [f"{name}/a", f"{name}/b"]
    rows = [json.loads(line) for line in perennial.ok("ls", f"{name}/", "--json").splitlines()]
    assert [row["status"] for row in rows] == ["Open", "Open"]
    table = perennial.ok("ls", f"{name}/", "--long").decode()
    assert "application/octet-stream" in table


def test_closing_with_last_words(perennial: Command, name: str) -> None:
    perennial.ok("create", name, "-t", "text/plain", "-d", "a")
    perennial.ok("close", name, "-d", "z")
    assert perennial.ok("read", name) == b"az"
    refused = perennial("append", name, "-d", "late")
    assert refused.code == Code.CONFLICT
    assert "closed" in refused.err


def test_removing_many_names_and_reporting_the_missing_one(perennial: Command, name: str) -> None:
    perennial.ok("create", f"{name}-1")
    perennial.ok("create", f"{name}-2")
    ended = perennial("rm", f"{name}-1", f"{name}-nope", f"{name}-2")
    assert ended.code == Code.NOT_FOUND
    assert f"{name}-nope" in ended.err
    assert perennial("head", f"{name}-2").code == Code.NOT_FOUND
    assert perennial("rm", "--force", f"{name}-1").code == Code.OK


def test_forking(perennial: Command, name: str) -> None:
    perennial.ok("create", name, "-t", "text/plain", "-d", "abcdef")
    perennial.ok("fork", name, f"{name}-fork", "--offset", "0000000000000003")
    perennial.ok("append", f"{name}-fork", "-d", "X")
    assert perennial.ok("read", f"{name}-fork") == b"abcX"
    assert perennial("fork", f"{name}-none", f"{name}-other").code == Code.NOT_FOUND


def test_buckets(perennial: Command) -> None:
    perennial.ok("bucket", "create", "cli-bucket")
    assert perennial("bucket", "create", "cli-bucket").code == Code.CONFLICT
    perennial.ok("create", "s", "--bucket", "cli-bucket", "-t", "text/plain", "-d", "x")
    assert perennial.ok("ls", "--bucket", "cli-bucket") == b"s\n"
    assert perennial.ok("read", "s", "--bucket", "cli-bucket") == b"x"
    assert json.loads(perennial.ok("bucket", "show", "cli-bucket"))["streams"] == 1
    assert perennial("bucket", "rm", "cli-bucket").code == Code.CONFLICT
    perennial.ok("rm", "s", "--bucket", "cli-bucket")
    perennial.ok("bucket", "rm", "cli-bucket")
    assert perennial("ls", "--bucket", "cli-bucket").code == Code.NOT_FOUND


def test_names_paths_and_urls_address_the_same_stream(perennial: Command, name: str) -> None:
    perennial.ok("create", name, "-t", "text/plain", "-d", "x")
    assert perennial.ok("read", f"/v1/stream/{name}") == b"x"
    assert perennial.ok("read", f"{perennial.url}/v1/stream/{name}", "--url", "http://127.0.0.1:1") == b"x"


def test_names_are_encoded(perennial: Command) -> None:
    odd = "cli odd/näme?&#%"
    perennial.ok("create", odd, "-t", "text/plain", "-d", "x")
    assert perennial.ok("read", odd) == b"x"
    assert perennial.ok("ls", "cli odd").decode() == f"{odd}\n"


@pytest.mark.parametrize("command", ["read", "head", "tail", "close"])
def test_a_missing_stream_is_not_found(perennial: Command, command: str) -> None:
    ended = perennial(command, "cli-never-there")
    assert (ended.code, ended.out) == (Code.NOT_FOUND, b"")
    assert ended.err.startswith("perennial: ")


@pytest.mark.parametrize("command", ["read", "tail"])
def test_what_is_no_stream_is_not_printed_for_ever(perennial: Command, command: str) -> None:
    ended = perennial(command, "/healthz")
    assert (ended.code, ended.out) == (Code.NOT_FOUND, b"")
    assert "is not a stream" in ended.err


def test_a_name_that_is_no_utf_8_is_refused_in_a_sentence(perennial: Command) -> None:
    ended = perennial("create", os.fsdecode(b"\xff"))
    assert ended.code == Code.FAILED
    assert ended.err.startswith("perennial: ")


def test_names_do_not_reach_a_terminal_as_commands(perennial: Command, name: str) -> None:
    odd = f"{name}/a\x1b[31m\nb"
    perennial.ok("create", odd)
    assert perennial.ok("ls", f"{name}/") == f"{odd}\n".encode(), "a program gets what there is"
    assert f"{name}/a\\x1b[31m\\nb" in perennial.ok("ls", f"{name}/", "--long").decode()
    ours, terminal = os.openpty()
    try:
        with perennial.begin("ls", f"{name}/", stdout=terminal) as command:
            assert command.wait(20) == 0
        assert os.read(ours, 1000) == f"{name}/a\\x1b[31m\\nb\r\n".encode()
    finally:
        os.close(ours)
        os.close(terminal)


def test_output_that_cannot_be_written_is_told_in_a_sentence(perennial: Command, name: str) -> None:
    perennial.ok("create", name, "-d", "x")
    for arguments in (("read", name), ("head", name)):
        with open("/dev/full", "wb") as full, perennial.begin(*arguments, stdout=full) as command:
            assert command.wait(20) == Code.FAILED
            assert command.stderr is not None
            assert command.stderr.read() == b"perennial: cannot go on: [Errno 28] No space left on device\n"


def test_nobody_listening_is_told_apart_from_everything_else(perennial: Command) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ended = perennial("read", "x", "--url", f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert ended.code == Code.UNREACHABLE
    assert "PERENNIAL_URL" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("frobnicate",),
        ("read",),
        ("read", "x", "--nope"),
        ("read", "x", "--url", "ftp://x"),
        ("read", "x", "--url", "http://"),
        ("read", "x", "--url", "http://host:port"),
        ("read", "x", "--url", "http://[::1"),
        ("snapshot", "x", "-p", "f"),
        ("read", "x", "--token", "two\nlines"),
        ("create", "x", "--content-type", os.fsdecode(b"text/\xff")),
    ],
)
def test_wrong_usage(perennial: Command, arguments: tuple[str, ...]) -> None:
    ended = perennial(*arguments)
    assert (ended.code, ended.out) == (Code.USAGE, b""), ended
    assert ended.err
