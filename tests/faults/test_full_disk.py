"""A disk that is really full: what fails says so and leaves no trace, reading goes on, and it passes."""

import time
from typing import Any

import msgspec
import pytest

from tests.harness.server import ServerProcess
from tests.harness.small_disk import MIB, SmallDisk
from tests.harness.wire import Answer, Wire

STREAM = "/v1/stream/s"
TEXT = {"Content-Type": "text/plain"}
PATIENCE_SECONDS = 40.0


def append(wire: Wire, seq: int, size: int = 20_000) -> Answer:
    producer = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": str(seq)}
    return wire.request("POST", STREAM, TEXT | producer, b"%09d\n" % seq + b"." * (size - 10))


def fill_up(wire: Wire, disk: SmallDisk) -> int:
    """Append until the disk is full; returns the number that were stored."""
    assert wire.request("PUT", STREAM, TEXT).status == 201
    assert append(wire, 0).status == 200
    disk.fill(leave=2 * MIB)
    for seq in range(1, 10_000):
        answer = append(wire, seq)
        if answer.status != 200:
            assert answer.status == 503, answer
            assert answer.error["code"] == "NOT_STORED"
            assert answer.headers["retry-after"]
            return seq
    raise AssertionError("the disk never got full")


def read(wire: Wire) -> bytes:
    content = b""
    while True:
        answer = wire.request("GET", f"{STREAM}?offset={len(content):016d}")
        assert answer.status == 200, answer
        content += answer.body
        if "stream-up-to-date" in answer.headers:
            return content


def readiness(wire: Wire) -> tuple[int, dict[str, Any]]:
    answer = wire.request("GET", "/readyz")
    return answer.status, msgspec.json.decode(answer.body)


def wait_until_ready(wire: Wire) -> float:
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE_SECONDS:
        if readiness(wire)[0] == 200:
            return time.monotonic() - began
        time.sleep(0.1)
    raise AssertionError("the server did not recover")


def test_a_full_disk_makes_the_server_read_only_until_there_is_room(disk: SmallDisk) -> None:
    with ServerProcess(disk.path / "data") as server, Wire(server.port) as wire:
        stored = fill_up(wire, disk)
        # Not ready, and it says why; alive all the same.
        status, body = readiness(wire)
        assert status == 503
        assert "disk is full" in body["reasons"][0]
        assert wire.request("GET", "/healthz").status == 200
        # Everything that was stored can be read, and nothing else.
        assert len(read(wire)) == 20_000 * stored
        assert int(wire.request("HEAD", STREAM).next_offset) == 20_000 * stored
        # Everything that would write is refused in the same way, and again.
        for _ in range(3):
            assert append(wire, stored).status == 503
        assert wire.request("PUT", "/v1/stream/other", TEXT, b"x" * 1000).status == 503
        assert wire.request("DELETE", STREAM).status == 503
        assert wire.request("PUT", "/ds/buck").status == 503
        assert wire.request("HEAD", "/v1/stream/other").status == 404
        # Room again: without a restart, and without anyone writing.
        disk.free()
        wait_until_ready(wire)
        for seq in range(stored, stored + 50):
            assert append(wire, seq).status == 200, "each of them once, in the old order"
        assert append(wire, stored + 49).status == 204
        expected = b"".join(b"%09d\n" % seq + b"." * 19_990 for seq in range(stored + 50))
        assert read(wire) == expected
        assert wire.request("DELETE", "/v1/stream/other").status == 404
        # And the store is as good as new, also for the next process.
        server.kill()
        server.start()
        with Wire(server.port) as again:
            assert read(again) == expected
            assert append(again, stored + 50).status == 200
    assert "Traceback" not in server.output, server.output
    assert server.output.count("writing failed") <= 3, "a full disk may not flood the log"


def test_a_full_disk_is_told_to_a_client_that_says_the_same_words_with_every_body(disk: SmallDisk) -> None:
    """Whose appends take a shorter way: see `http.lanes`."""
    lines = [b"%09d\n" % number + b"." * 9_990 for number in range(5000)]
    with ServerProcess(disk.path / "data") as server, Wire(server.port) as wire:
        assert wire.request("PUT", STREAM, TEXT).status == 201
        disk.fill(leave=2 * MIB)
        stored = 0
        while (answer := wire.request("POST", STREAM, TEXT, lines[stored])).status == 204:
            stored += 1
        for _ in range(3):
            assert (answer.status, answer.error["code"]) == (503, "NOT_STORED")
            answer = wire.request("POST", STREAM, TEXT, lines[stored])
        assert read(wire) == b"".join(lines[:stored])
        disk.free()
        wait_until_ready(wire)
        answer = wire.request("POST", STREAM, TEXT, lines[stored])
        assert (answer.status, int(answer.next_offset)) == (204, 10_000 * (stored + 1))
        server.kill()
        server.start()
        with Wire(server.port) as again:
            assert read(again) == b"".join(lines[: stored + 1])


def test_a_server_killed_on_a_full_disk_has_lost_nothing(disk: SmallDisk) -> None:
    with ServerProcess(disk.path / "data") as server:
        with Wire(server.port) as wire:
            stored = fill_up(wire, disk)
        server.kill()
        disk.free()
        server.start()
        with Wire(server.port) as wire:
            assert len(read(wire)) == 20_000 * stored
            assert append(wire, stored).status == 200


def test_a_snapshot_that_does_not_fit_is_refused_and_leaves_nothing(disk: SmallDisk) -> None:
    with ServerProcess(disk.path / "data") as server, Wire(server.port) as wire:
        assert wire.request("PUT", STREAM, TEXT, b"abc").status == 201
        disk.fill(leave=2 * MIB)
        path = "/ds/default/s/snapshot/0000000000000003"
        answer = wire.request("PUT", path, {"Content-Type": "text/plain"}, bytes(20 * MIB))
        assert answer.status == 503, answer
        assert wire.request("GET", "/ds/default/s/snapshot").status == 404
        disk.free()
        wait_until_ready(wire)
        assert wire.request("PUT", path, {"Content-Type": "text/plain"}, bytes(5 * MIB)).status == 204
        assert len(wire.request("GET", path).body) == 5 * MIB
    assert "Traceback" not in server.output, server.output


def test_starting_on_a_full_disk_says_so(disk: SmallDisk) -> None:
    with ServerProcess(disk.path / "data") as server, Wire(server.port) as wire:
        assert wire.request("PUT", STREAM, TEXT, b"abc" * MIB).status == 201
        server.kill()
        disk.fill(leave=0)
        with pytest.raises(RuntimeError, match="no space left") as failed:
            server.start()
        assert "Traceback" not in str(failed.value)
        disk.free()
        server.restart()
        with Wire(server.port) as again:
            assert len(read(again)) == 3 * MIB
