"""Readers that stop reading: the server does not keep for them what they do not take."""

from contextlib import ExitStack

from tests.harness.footprint import resident_bytes
from tests.harness.server import ServerProcess
from tests.harness.wire import Wire

STREAM = "/v1/stream/large"
TEXT = {"Content-Type": "text/plain"}
MIB = 1 << 20
APPENDED_MIB = 120
READERS = 5
# One reader that is buffered for would take more than this alone.
ALLOWED_GROWTH = 100 * MIB


def append(server: ServerProcess, mebibytes: int) -> None:
    """Lines of a mebibyte, each of one letter of its own."""
    with Wire(server.port) as wire:
        for number in range(mebibytes):
            line = bytes([ord("A") + number % 26]) * (MIB - 1) + b"\n"
            assert wire.request("POST", STREAM, TEXT, line).status == 204


def test_readers_that_stop_reading_do_not_grow_the_server(server: ServerProcess) -> None:
    with ExitStack() as stack:
        setup = stack.enter_context(Wire(server.port))
        assert setup.request("PUT", STREAM, TEXT).status == 201
        append(server, APPENDED_MIB)  # so that the store's own buffers and caches have their full size
        tail = setup.request("HEAD", STREAM).next_offset

        live = [stack.enter_context(Wire(server.port, receive_buffer=4096)) for _ in range(READERS)]
        for wire in live:
            wire.ask("GET", f"{STREAM}?offset={tail}&live=sse")
            assert wire.head()[0] == 200
        catching_up = [stack.enter_context(Wire(server.port, receive_buffer=4096)) for _ in range(READERS)]
        for wire in catching_up:
            for _ in range(20):  # asked for ahead of time, and never taken
                wire.ask("GET", f"{STREAM}?offset=-1")
            assert wire.head()[0] == 200

        before = resident_bytes(server.pid)
        append(server, APPENDED_MIB)
        growth = resident_bytes(server.pid) - before
        assert growth < ALLOWED_GROWTH, f"grew by {growth / MIB:.0f} MiB"

        # One that wakes up gets everything, from the store, in order and once.
        received = 0
        for event in live[0].events():
            if event.kind == "data":
                for line in event.data.split("\n"):
                    assert line == line[:1] * len(line)
                received += len(event.data)
            elif int(event.control["streamNextOffset"]) == int(tail) + APPENDED_MIB * MIB:
                break
        assert received == APPENDED_MIB * MIB
