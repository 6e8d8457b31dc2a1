"""How large a server is: a store with many streams in it, many idle readers, and the memory they take."""

import asyncio
import os
import random
import resource
import socket
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from perennial.protocol.create import Create
from perennial.protocol.names import DEFAULT_BUCKET
from perennial.protocol.rejections import Rejected
from perennial.service.streams import StreamService
from perennial.store.rocks import RocksStore

CREATES_AT_ONCE = 2000
PAYLOAD_BYTES = 200
PATIENCE_SECONDS = 30.0


def stream_name(number: int) -> str:
    return f"many/{number:07d}"


def build_streams(directory: Path, count: int, report: Callable[[int], None] = lambda done: None) -> None:
    """Streams of one small message each, through the service but without HTTP or waiting for the disk."""
    asyncio.run(_build(directory, count, report))


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no memory: it has ended")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far: unlike the clock, it does not count what others do meanwhile."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class IdleReaders:
    """SSE connections that are caught up and wait, number n at stream n modulo `streams`."""

    def __init__(self, port: int, count: int, streams: int) -> None:
        allow_open_files(count + 500)
        self._sockets: list[socket.socket] = []
        for number in range(count):
            connection = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
            self._sockets.append(connection)
            path = f"/v1/stream/{stream_name(number % streams)}?offset=now&live=sse"
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        for connection in self._sockets:
            received = b""
            while b'"upToDate":true' not in received:
                data = connection.recv(4096)
                assert data, f"turned away: {received!r}"
                received += data

    def close(self) -> None:
        for connection in self._sockets:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def allow_open_files(count: int) -> None:
    """For this process and those it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


class _UnsyncedStore(RocksStore):
    """Waits for the disk once, when it is closed."""

    def begin_sync(self) -> Callable[[], None]:
        super().begin_sync()
        return lambda: None


async def _build(directory: Path, count: int, report: Callable[[int], None]) -> None:
    service = StreamService(_UnsyncedStore(directory))
    chance = random.Random(4437)  # bytes that do not compress
    for first in range(0, count, CREATES_AT_ONCE):
        for number in range(first, min(count, first + CREATES_AT_ONCE)):
            command = Create(body=chance.randbytes(PAYLOAD_BYTES))
            service.create(DEFAULT_BUCKET, stream_name(number), command, _expect_success)
        await service.committer.settle()
        report(min(count, first + CREATES_AT_ONCE))
    await service.close()


def _expect_success(outcome: Any, state: object) -> None:
    assert not isinstance(outcome, Rejected), outcome
