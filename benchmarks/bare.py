"""What the parts give by themselves: uvloop, httptools, RocksDB and fdatasync, with no rule in between.

`python -m benchmarks.bare DIRECTORY` answers every request once its body is durable: no routing, no state,
no offsets, nothing to read back. No server built from these parts in this language can be faster, so its
figure is the limit that Perennial's is held against.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import httptools
import uvloop
from rocksdict import Options, Rdict, WriteBatch, WriteOptions

ANSWER = b"HTTP/1.1 204 No Content\r\nstream-next-offset: 0000000000000256\r\n\r\n"
MEMTABLE_BYTES = 64 << 20


class Log:
    """Group commit at its barest: while one batch is being synced, the next one gathers."""

    def __init__(self, directory: Path) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_wal_dir(str(directory / "wal"))
        options.set_write_buffer_size(MEMTABLE_BYTES)
        self._directory = directory / "wal"
        self._store = Rdict(str(directory), options)
        self._how = WriteOptions()
        self._waiting: list[tuple[asyncio.Transport, bytes]] = []
        self._busy = False
        self._written = 0
        self._loop = asyncio.get_running_loop()

    def append(self, transport: asyncio.Transport, body: bytes) -> None:
        self._waiting.append((transport, body))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._commit)

    def _commit(self) -> None:
        group, self._waiting = self._waiting, []
        batch = WriteBatch(raw_mode=True)
        for number, (_, body) in enumerate(group, self._written):
            batch.put(b"%016d" % number, body)
        self._written += len(group)
        self._store.write(batch, self._how)
        synced = self._loop.run_in_executor(None, self._sync)
        synced.add_done_callback(lambda _: self._answer(group))

    def _sync(self) -> None:
        newest = max(self._directory.glob("*.log"))
        file = os.open(newest, os.O_RDWR)
        try:
            os.fdatasync(file)
        finally:
            os.close(file)

    def _answer(self, group: list[tuple[asyncio.Transport, bytes]]) -> None:
        if self._waiting:
            self._commit()
        else:
            self._busy = False
        for transport, _ in group:
            if not transport.is_closing():
                transport.write(ANSWER)


class Connection(asyncio.Protocol):
    """Hands bodies to the log; everything else about a request is ignored."""

    transport: asyncio.Transport

    def __init__(self, log: Log) -> None:
        self._log = log
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a stream has a stream's transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body = body

    def on_message_complete(self) -> None:
        self._log.append(self.transport, self._body)


async def serve(directory: Path) -> None:
    log = Log(directory)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(log), "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    print(f"listening on http://127.0.0.1:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1])))
