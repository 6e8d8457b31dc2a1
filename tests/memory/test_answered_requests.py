"""What was answered leaves memory: many streams in use cost the same, whatever was last sent to them."""

from tests.harness.footprint import resident_bytes
from tests.harness.server import ServerProcess
from tests.harness.wire import Wire

TEXT = {"Content-Type": "text/plain"}
MIB = 1 << 20
WARM_UP = 250
STREAMS = 120
# Less than half of what was sent to them; what the store's own buffers and caches still lack is much less.
ALLOWED_GROWTH = 50 * MIB


def test_streams_in_use_do_not_keep_the_last_request_sent_to_them(server: ServerProcess) -> None:
    body = b"y" * MIB
    with Wire(server.port) as wire:
        assert wire.request("PUT", "/v1/stream/first", TEXT).status == 201
        for _ in range(WARM_UP):  # so that the store's own buffers and caches have their full size
            assert wire.request("POST", "/v1/stream/first", TEXT, body).status == 204
        before = resident_bytes(server.pid)
        for number in range(STREAMS):
            assert wire.request("PUT", f"/v1/stream/{number}", TEXT, body).status == 201
        growth = resident_bytes(server.pid) - before
    assert growth < ALLOWED_GROWTH, f"grew by {growth / MIB:.0f} MiB"
