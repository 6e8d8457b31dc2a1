"""The way to the server, over a wire that breaks, to a server that is busy; without Spark."""

import random
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from perennial.spark.appends import Sink
from perennial.spark.batching import Group
from perennial.spark.errors import PipelineError, Refused, Unreachable
from perennial.spark.options import parse_write_options

BUSY: tuple[str, dict[str, str], bytes] = ("429 Too Many Requests", {}, b"")
GAP = b'{"error": {"code": "SEQUENCE_GAP", "message": "a gap"}}'


class FlakyServer:
    """Knows creation and producers, and fails as a seed has it: busy, or gone before or after the deed."""

    def __init__(self, seed: int, trouble: float) -> None:
        self._chance = random.Random(seed)
        self._trouble = trouble
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], int] = {}
        self.bodies: dict[str, list[bytes]] = defaultdict(list)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as wire, suppress(OSError):
            while line := wire.readline():
                method, path, _ = line.decode().split()
                headers = {}
                while (header := wire.readline().strip()) != b"":
                    name, _, value = header.decode().partition(": ")
                    headers[name.lower()] = value
                body = wire.read(int(headers.get("content-length", 0)))
                with self._lock:
                    event = self._chance.random()
                    if event < self._trouble / 3:
                        return
                    if event < self._trouble * 2 / 3:
                        status, fields, words = BUSY
                    else:
                        status, fields, words = self._answer(method, path, headers, body)
                    if event < self._trouble and event >= self._trouble * 2 / 3:
                        return  # done, but nobody hears of it
                lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in fields.items())]
                connection.sendall(
                    "\r\n".join([*lines, f"content-length: {len(words)}", "", ""]).encode() + words
                )

    def _answer(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[str, dict[str, str], bytes]:
        if method == "PUT":
            return "201 Created", {"content-type": headers["content-type"]}, b""
        producer, seq = (path, headers["producer-id"]), int(headers["producer-seq"])
        expected = self._known.get(producer, -1) + 1
        if seq > expected:
            return "409 Conflict", {"producer-expected-seq": str(expected)}, GAP
        if seq < expected:
            return "204 No Content", {}, b""
        self._known[producer] = seq
        self.bodies[path].append(body)
        return "200 OK", {}, b""


@contextmanager
def flaky(seed: int, trouble: float) -> Iterator[FlakyServer]:
    server = FlakyServer(seed, trouble)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.listener.shutdown(socket.SHUT_RDWR)
        server.listener.close()
        thread.join()


@contextmanager
def sink_to(url: str, **options: str) -> Iterator[Sink]:
    given = {"url": url, "bucket": "agents", "connections": "2", **options}
    sink = Sink(parse_write_options(given), "p", 0)
    try:
        yield sink
    finally:
        sink.close()


@pytest.mark.parametrize("seed", range(5))
def test_every_message_arrives_once_and_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perennial.spark.http.FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr("perennial.spark.http.LONGEST_PAUSE_SECONDS", 0.002)
    with flaky(seed, trouble=0.05) as server, sink_to(server.url, contentType="text/plain") as sink:
        payloads = [b"%d" % number for number in range(300)]
        for start in range(0, 300, 100):
            sink.write([Group(f"s{n}", None, None, payloads[start : start + 100]) for n in range(4)])
        written = sink.finish()
    assert written.rows == 4 * 300
    assert server.bodies == {f"/ds/agents/s{n}": payloads for n in range(4)}


def test_a_server_that_stays_busy_is_given_up() -> None:
    with (
        flaky(0, trouble=1.5) as server,
        sink_to(server.url, retrySeconds="0.2") as sink,
        pytest.raises((Refused, Unreachable)),
    ):
        sink.write([Group("s", None, None, [b"x"])])


def test_nobody_there_is_said_after_patience() -> None:
    with (
        sink_to("http://127.0.0.1:9", retrySeconds="0.2") as sink,
        pytest.raises(Unreachable, match="connection refused"),
    ):
        sink.write([Group("s", None, None, [b"x"])])


def test_rows_of_another_kind_than_the_stream_holds_are_refused() -> None:
    with flaky(0, trouble=0) as server, sink_to(server.url) as sink:
        sink.write([Group("s", None, "text/plain", [b"x"])])
        with pytest.raises(PipelineError, match="holds text/plain, and these rows are application/json"):
            sink.write([Group("s", None, "application/json", [b"1"])])
