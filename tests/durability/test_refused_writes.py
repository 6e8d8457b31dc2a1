"""Writes that the system refuses: answered as refused, with reads going on and nothing acknowledged lost.

A limit on the size of files makes the log fail in the middle of a write. It needs no privileges, and unlike a
full disk (`tests/faults`) it is an error that RocksDB does not expect to pass.
"""

import resource

from tests.harness.server import ServerProcess
from tests.harness.wire import Wire

STREAM = "/v1/stream/filling"
TEXT = {"Content-Type": "text/plain"}
PIECE = b"x" * 100_000


def limit_files(server: ServerProcess, size: int) -> None:
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def produce(wire: Wire, number: int) -> int:
    who = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": str(number)}
    answer = wire.request("POST", STREAM, TEXT | who, b"%06d" % number + PIECE)
    if answer.status == 503:
        assert answer.error["code"] == "NOT_STORED"
        assert answer.headers["retry-after"]
    return answer.status


def test_a_log_that_cannot_grow_refuses_writes_and_keeps_what_it_has(server: ServerProcess) -> None:
    with Wire(server.port) as wire, Wire(server.port) as other:
        assert wire.request("PUT", STREAM, TEXT).status == 201
        limit_files(server, 2_000_000)
        acknowledged = 0
        while (status := produce(wire, acknowledged)) == 200:
            acknowledged += 1
        assert (status, acknowledged > 5) == (503, True)

        # The same again is no duplicate: it has not happened.
        assert produce(wire, acknowledged) == 503
        assert other.request("POST", STREAM, TEXT, b"small").status in (204, 503)
        assert other.request("HEAD", STREAM).status == 200
        assert len(other.request("GET", STREAM).body) > 0

        # With room again, it recovers or goes on refusing; it does not pretend.
        limit_files(server, resource.RLIM_INFINITY)
        while acknowledged < 100 and produce(wire, acknowledged) == 200:
            acknowledged += 1
    server.clean_exits = (0, 1)  # if it never recovered, closing the store fails too, and it says so
    server.restart()

    with Wire(server.port) as wire:
        content, offset = b"", "-1"
        while len(content) < acknowledged * (6 + len(PIECE)):
            answer = wire.request("GET", f"{STREAM}?offset={offset}")
            assert answer.body, f"{len(content)} bytes are left of {acknowledged} acknowledged pieces"
            content += answer.body
            offset = answer.next_offset
        pieces = [b"%06d" % number + PIECE for number in range(acknowledged)]
        assert content.replace(b"small", b"").startswith(b"".join(pieces))
        assert produce(wire, acknowledged - 1) == 204
        assert produce(wire, acknowledged) in (200, 204)
        assert produce(wire, acknowledged + 1) == 200
    assert "Traceback" not in server.output, server.output
