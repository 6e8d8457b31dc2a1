"""Listening, the tick, and leaving in good order. Signals are the command line's business."""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Sequence
from typing import Protocol

from perennial.http.binding import bind
from perennial.http.connection import Connection
from perennial.http.exchange import Handler
from perennial.http.limits import Limits
from perennial.http.state import ServerState

BACKLOG = 4096
TICK_SECONDS = 0.5


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
        self._servers: list[asyncio.Server] = []  # one for every address
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

    async def start(self, sockets: Sequence[socket.socket] | None = None) -> None:
        """On `sockets`, if the address has been taken already (see `binding`). They become the server's."""
        loop = asyncio.get_running_loop()
        state = self._state
        bound = bind(self._host, self._port, self._path) if sockets is None else sockets
        if bound[0].family != socket.AF_UNIX:
            self._port = bound[0].getsockname()[1]
        for each in bound:
            listen = loop.create_server if each.family != socket.AF_UNIX else loop.create_unix_server
            server = await listen(
                lambda: Connection(state),
                sock=each,
                backlog=BACKLOG,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else state.limits.header_seconds,
            )
            self._servers.append(server)
        self._tick()

    async def stop(self, grace: float = 10.0) -> None:
        """Accept nothing new, end live reads, let begun answers finish; cut what is left after `grace`."""
        if not self._servers:
            return
        state = self._state
        state.draining = True
        self.stop_listening()
        self._handler.drain()
        for connection in tuple(state.connections):
            connection.drain()
        try:
            await self.wait_until_left(grace)
        finally:
            if self._tick_handle is not None:
                self._tick_handle.cancel()

    def stop_listening(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def wait_until_left(self, grace: float) -> None:
        """Until no connection is left, or else cut those that are after `grace`."""
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
