"""What no stream could be called is not remembered, however often it is asked for."""

from tests.harness.footprint import resident_bytes
from tests.harness.server import ServerProcess
from tests.harness.wire import Wire

MIB = 1 << 20
REQUESTS = 4000
LONG = "y" * 7500
ALLOWED_GROWTH = 15 * MIB  # half of what was sent, of each kind


def test_long_names_and_content_types_leave_nothing_behind(server: ServerProcess) -> None:
    with Wire(server.port) as wire:
        ask(wire, range(100))
        before = resident_bytes(server.pid)
        ask(wire, range(100, REQUESTS))
        growth = resident_bytes(server.pid) - before
    assert growth < ALLOWED_GROWTH, f"grew by {growth / MIB:.0f} MiB"


def ask(wire: Wire, numbers: range) -> None:
    for number in numbers:
        assert wire.request("GET", f"/v1/stream/{number}{LONG}").status == 400
        strange = {"Content-Type": f"text/{number}{LONG}"}
        assert wire.request("POST", "/v1/stream/x", strange, b"x").status == 400
