"""The upstream of the proxy benchmark: a process of its own, with `/allowed/first`, `…/tokens` and `…/idle`.

A token is a line with the time it was sent, on the clock that all processes of the machine share.
"""

from __future__ import annotations

import asyncio
import sys
import time

import uvloop

TOKENS_PER_SECOND = 50
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def token() -> bytes:
    return b"data: %020d\n\n" % time.monotonic_ns()


class Upstream(asyncio.Protocol):
    """Answers whatever comes by its path; requests fit into one packet."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's is no subclass
        self._timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        path = data.split(b" ", 2)[1]
        if path.endswith(b"/first"):
            self._transport.write(HEAD + chunk(token()) + b"0\r\n\r\n")
        elif path.endswith(b"/idle"):
            self._transport.write(HEAD + chunk(token()))
        else:
            self._transport.write(HEAD)
            loop = asyncio.get_running_loop()
            # Spread out, or all streams would tick in the same instant.
            phase = (id(self) >> 6) % 997 / 997 / TOKENS_PER_SECOND
            self._left = int(path.rpartition(b"=")[2])
            self._next = loop.time() + phase
            self._timer = loop.call_at(self._next, self._tick)

    def _tick(self) -> None:
        self._transport.write(chunk(token()))
        self._left -= 1
        if self._left:
            self._next += 1 / TOKENS_PER_SECOND
            self._timer = asyncio.get_running_loop().call_at(self._next, self._tick)
        else:
            self._transport.write(b"0\r\n\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(uvloop.run(serve()))
