"""Listening, the tick, and leaving in good order. Signals are the command line's business."""

import asyncio
import os
import socket
import ssl
import time
from typing import Protocol

from perennial.http.connection import Connection
from perennial.http.exchange import Handler
from perennial.http.limits import Limits
from perennial.http.state import ServerState

BACKLOG = 4096
TICK_SECONDS = 0.5

# How much may lie unsent in the kernel for one peer. The default runs to megabytes, which would hide a slow
# reader from us (its buffer space frees up in steps of many seconds) and cost as much for each of them.
UNSENT_BYTES = 128 * 1024


class DrainingHandler(Handler, Protocol):
    def drain(self) -> None:
        """End all live reads soon: the server is going away."""


class Server:
    """Serves one handler at one address: `host` and `port` (0: any free one), or a Unix socket's path."""

    def __init__(
        self,
        handler: DrainingHandler,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        path: str | os.PathLike[str] | None = None,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._handler = handler
        self._host = host
        self._port = port
        self._path = path
        self._tls = tls
        self._state = ServerState(
            handler, limits or Limits(), time.monotonic(), time.time(), secure=tls is not None
        )
        self._server: asyncio.Server | None = None
        self._tick_handle: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port in use: the real one, if 0 was asked for."""
        return self._port

    @property
    def connections(self) -> int:
        return len(self._state.connections)

    @property
    def turned_away(self) -> int:
        """Connections beyond the limit, since the start."""
        return self._state.turned_away

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        state = self._state
        if self._path is not None:
            self._server = await loop.create_unix_server(
                lambda: Connection(state), self._path, backlog=BACKLOG, ssl=self._tls
            )
        else:
            self._server = await loop.create_server(
                lambda: Connection(state),
                self._host,
                self._port,
                backlog=BACKLOG,
                reuse_address=True,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else state.limits.header_seconds,
            )
            self._port = self._server.sockets[0].getsockname()[1]
            for listener in self._server.sockets:  # accepted sockets inherit it
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        self._tick()

    async def stop(self, grace: float = 10.0) -> None:
        """Accept nothing new, end live reads, let begun answers finish; cut what is left after `grace`."""
        if self._server is None:
            return
        state = self._state
        state.draining = True
        self._server.close()
        self._server = None
        self._handler.drain()
        for connection in tuple(state.connections):
            connection.drain()
        try:
            await self._wait_for_connections(grace)
        finally:
            if self._tick_handle is not None:
                self._tick_handle.cancel()

    async def _wait_for_connections(self, grace: float) -> None:
        if not self._state.connections:
            return
        gone = asyncio.Event()
        self._state.on_empty = gone.set
        try:
            async with asyncio.timeout(grace):
                await gone.wait()
        except TimeoutError:
            for connection in tuple(self._state.connections):
                connection.abort()
            await gone.wait()

    def _tick(self) -> None:
        self._tick_handle = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
        state = self._state
        now = time.monotonic()
        late = now - state.now > 4 * TICK_SECONDS
        state.now = now
        state.set_time(time.time())
        # After a standstill of our own, peers may have sent what we have not read yet: ask at the next tick.
        if not late:
            for connection in tuple(state.connections):
                connection.check(now)
