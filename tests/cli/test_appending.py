"""`append`, `read`, `tail`, `snapshot`, `bootstrap`: bytes in, the same bytes out."""

import json
import os
import random
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from perennial.cli.exits import Code
from tests.cli.run import Command
from tests.harness.server import ServerProcess
from tests.harness.wire import Wire


def test_standard_input_comes_back_byte_for_byte(perennial: Command, name: str) -> None:
    content = random.Random(1).randbytes(1_000_003)
    perennial.ok("append", name, "--create", stdin=content)
    assert perennial.ok("read", name) == content


def test_files_one_after_another(perennial: Command, name: str) -> None:
    (perennial.directory / "a").write_bytes(b"first\n")
    (perennial.directory / "b").write_bytes(b"second\n")
    perennial.ok("append", name, "a", "b", "--create", "-t", "text/plain")
    assert perennial.ok("read", name) == b"first\nsecond\n"
    assert perennial("append", name, "nowhere").code == Code.USAGE


def test_lines_are_messages(perennial: Command, name: str) -> None:
    perennial.ok("create", name, "-t", "application/json")
    ended = perennial("append", name, "--lines", stdin=b'{"a": 1}\n\n[1, 2]\n"three"')
    assert "3 messages" in ended.err
    assert perennial.ok("read", name) == b'{"a": 1}\n[1, 2]\n"three"\n'


def test_many_lines_in_few_requests(perennial: Command, name: str) -> None:
    perennial.ok("create", name, "-t", "application/json")
    lines = b"".join(b'{"n": %d}\n' % number for number in range(20_000))
    perennial.ok("append", name, "--lines", stdin=lines)
    assert perennial.ok("read", name) == lines


def test_lines_of_text_keep_their_breaks(perennial: Command, name: str) -> None:
    perennial.ok("create", name, "-t", "text/plain")
    perennial.ok("append", name, "--lines", stdin=b"one\ntwo\nthree")
    assert perennial.ok("read", name) == b"one\ntwo\nthree"


def test_text_that_is_no_utf_8_is_appended_as_it_was_typed(perennial: Command, name: str) -> None:
    perennial.ok("create", name, "-d", os.fsdecode(b"\xff1"))
    perennial.ok("append", name, "-d", os.fsdecode(b"\xff2"))
    perennial.ok("close", name, "-d", os.fsdecode(b"\xff3"))
    assert perennial.ok("read", name) == b"\xff1\xff2\xff3"


def test_appending_to_a_missing_stream_says_how_to_create_it(perennial: Command, name: str) -> None:
    ended = perennial("append", name, "-d", "x")
    assert ended.code == Code.NOT_FOUND
    assert "--create" in ended.err


def test_a_directory_is_not_appended(perennial: Command, name: str) -> None:
    ended = perennial("append", name, perennial.directory)
    assert ended.code == Code.USAGE
    assert "is a directory" in ended.err


def test_bad_json_is_refused_with_the_reason(perennial: Command, name: str) -> None:
    perennial.ok("create", name, "-t", "application/json")
    ended = perennial("append", name, "-d", "{nope")
    assert ended.code == Code.FAILED
    assert "JSON" in ended.err


def test_the_same_input_sent_again_with_one_producer_is_stored_once(perennial: Command, name: str) -> None:
    content = random.Random(2).randbytes(600_000)
    perennial.ok("create", name)
    perennial.ok("append", name, "--producer", "import-1", stdin=content)
    again = perennial("append", name, "--producer", "import-1", stdin=content)
    assert "stored before" in again.err
    assert perennial.ok("read", name) == content


def test_an_older_epoch_is_fenced(perennial: Command, name: str) -> None:
    perennial.ok("create", name)
    perennial.ok("append", name, "--producer", "p", "--epoch", 1, "-d", "x")
    assert perennial("append", name, "--producer", "p", "--epoch", 0, "-d", "y").code == Code.CONFLICT


def test_reading_from_an_offset_and_telling_the_next(perennial: Command, name: str) -> None:
    perennial.ok("create", name, "-t", "text/plain", "-d", "abcdef")
    ended = perennial("read", name, "--offset", "0000000000000004", "--verbose")
    assert (ended.out, ended.err) == (b"ef", "next offset: 0000000000000006\n")


def test_pretty_json(perennial: Command, name: str) -> None:
    perennial.ok("create", name, "-t", "application/json", "-d", '[{"a":[1]},2]')
    assert perennial.ok("read", name, "--json") == b'{\n  "a": [\n    1\n  ]\n}\n2\n'
    perennial.ok("create", f"{name}-text", "-t", "text/plain", "-d", "x")
    assert perennial("read", f"{name}-text", "--json").code == Code.USAGE


def test_snapshot_and_bootstrap(perennial: Command, name: str) -> None:
    perennial.ok("create", name, "-t", "application/json", "-d", "[1,2]")
    assert perennial("snapshot", name).code == Code.NOT_FOUND
    offset = json.loads(perennial.ok("head", name, "--json"))["next_offset"]
    perennial.ok("snapshot", name, "-p", "-", "-o", offset, "-t", "application/json", stdin=b'{"sum": 3}')
    perennial.ok("append", name, "-d", "[4,5]")
    assert perennial.ok("snapshot", name) == b'{"sum": 3}'
    assert perennial.ok("bootstrap", name) == b'{"sum": 3}\n4\n5\n'
    perennial.ok("bootstrap", name, "--into", "there")
    assert (perennial.directory / "there" / "snapshot").read_bytes() == b'{"sum": 3}'
    assert (perennial.directory / "there" / "messages").read_bytes() == b"4\n5\n"
    assert perennial("read", name).code == Code.NOT_FOUND, "what lies before the snapshot is gone"


def test_tail_shows_what_comes_and_ends_with_the_stream(perennial: Command, name: str) -> None:
    perennial.ok("create", name, "-t", "application/json", "-d", "[1]")
    with perennial.begin("tail", name, "--offset", "-1") as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline() == b"1\n"
        perennial.ok("append", name, "-d", '{"n": 2}')
        assert tail.stdout.readline() == b'{"n": 2}\n'
        perennial.ok("close", name)
        assert tail.wait(20) == 0


def test_tail_stops_on_an_interrupt(perennial: Command, name: str) -> None:
    perennial.ok("create", name, "-t", "text/plain", "-d", "x")
    with perennial.begin("tail", name, "-o", "-1") as tail:
        assert tail.stdout is not None
        assert tail.stdout.read(1) == b"x"
        tail.send_signal(signal.SIGINT)
        assert tail.wait(20) == 130
        assert tail.stderr is not None
        assert b"Traceback" not in tail.stderr.read()


def test_tail_goes_on_where_a_lost_server_left_it(server: ServerProcess, name: str) -> None:
    perennial = Command(server.url, server.data.parent)
    perennial.ok("create", name, "-t", "text/plain")
    with perennial.begin("tail", name, "-o", "-1") as tail:
        assert tail.stdout is not None
        for number in range(3):
            perennial.ok("append", name, "-d", f"line {number}\n")
            assert tail.stdout.readline() == b"line %d\n" % number
            server.kill()
            server.start()
        perennial.ok("close", name)
        assert tail.wait(30) == 0
        assert tail.stdout.read() == b"", "nothing twice"


def test_tail_from_now_outlives_the_server_before_anything_came(server: ServerProcess, name: str) -> None:
    perennial = Command(server.url, server.data.parent)
    perennial.ok("create", name, "-t", "text/plain", "-d", "old")
    with perennial.begin("tail", name) as tail:
        with Wire(server.port) as wire:
            while b'live_readers{mode="long-poll"} 1' not in wire.request("GET", "/metrics").body:
                time.sleep(0.01)
        server.kill()
        server.start()
        perennial.ok("append", name, "-d", "new\n")
        perennial.ok("close", name)
        assert tail.wait(30) == 0
        assert tail.stdout is not None
        assert tail.stdout.read() == b"new\n", "nothing of before, nothing missed"


def test_append_waits_for_a_server_that_is_starting(perennial: Command) -> None:
    asked: list[str] = []

    class Starting(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            asked.append(self.command)
            self.send_response(503 if len(asked) == 1 else 200)
            self.send_header("stream-next-offset", "0")
            self.send_header("content-length", "0")
            self.end_headers()

        do_HEAD = do_POST = answer  # noqa: N815 (names of http.server)

    with ThreadingHTTPServer(("127.0.0.1", 0), Starting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ended = perennial("append", "x", "-d", "y", "--url", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert ended.code == 0, ended
    assert "trying again" in ended.err
    assert asked == ["HEAD", "HEAD", "POST"]


def test_append_outlives_the_server_and_doubles_nothing(server: ServerProcess, name: str) -> None:
    """Killed again and again in the middle of an import: every line is there, once and in order."""
    perennial = Command(server.url, server.data.parent)
    perennial.ok("create", name, "-t", "text/plain")
    lines = b"".join(b"%06d\n" % number for number in range(6000))
    with perennial.begin("append", name, "--lines", "--retry", 60) as import_:
        assert import_.stdin is not None
        feeder = threading.Thread(target=import_.communicate, args=(lines,))
        feeder.start()
        with Wire(server.port) as wire:
            while int(wire.request("HEAD", f"/v1/stream/{name}").next_offset) < 700:
                time.sleep(0.01)  # a server that was never there is not waited for
        for _ in range(3):
            time.sleep(0.3)
            server.kill()
            server.start()
        feeder.join()
        assert import_.returncode == 0
    assert perennial.ok("read", name) == lines
