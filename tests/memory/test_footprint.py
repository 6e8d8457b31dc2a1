"""Many streams and many readers cost little. `python -m benchmarks.memory` measures this at full size."""

from pathlib import Path

from tests.harness.footprint import IdleReaders, build_streams, cpu_seconds, resident_bytes, stream_name
from tests.harness.server import ServerProcess
from tests.harness.wire import Wire

STREAMS = 20_000
READERS = 500
MIB = 1 << 20
KIB = 1 << 10


def test_streams_at_rest_cost_no_start_up_time_and_readers_little_memory(tmp_path: Path) -> None:
    build_streams(tmp_path / "many", STREAMS)
    with ServerProcess(tmp_path / "empty") as empty:
        start_of_empty = cpu_seconds(empty.pid)
    with ServerProcess(tmp_path / "many") as server:
        # A start that works through the streams at length; the benchmark, with a million, is stricter.
        assert cpu_seconds(server.pid) < start_of_empty + 0.3
        assert resident_bytes(server.pid) < 150 * MIB

        with IdleReaders(server.port, 10, STREAMS):
            pass  # what the first few bring with them is not the cost of the others
        before = resident_bytes(server.pid)
        with IdleReaders(server.port, READERS, STREAMS):
            each = (resident_bytes(server.pid) - before) / READERS
        assert each < 30 * KIB, f"{each / KIB:.1f} KiB for each idle reader"

        with Wire(server.port) as wire:
            for number in range(0, STREAMS, 997):
                assert wire.request("HEAD", f"/v1/stream/{stream_name(number)}").next_offset == f"{200:016d}"
