"""HTTP for asyncio: one session, answers read piece by piece, one exception for a lost peer."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from perennial.client.address import SOCKET_ORIGIN
from perennial.client.calls import Call
from perennial.client.wire import ConnectionLost

BROKEN = (aiohttp.ClientError, OSError, TimeoutError)


class AsyncAnswer:
    """A response whose body has not been read."""

    def __init__(self, raw: aiohttp.ClientResponse) -> None:
        self._raw = raw
        self.status = raw.status
        self.headers = {name.lower(): value for name, value in raw.headers.items()}

    async def read_piece(self) -> bytes:
        """Some of the body, as soon as there is some; empty at its end."""
        try:
            return await self._raw.content.readany()
        except BROKEN as error:
            raise ConnectionLost("the connection broke in the middle of an answer") from error

    async def read(self) -> bytes:
        try:
            return await self._raw.read()
        except BROKEN as error:
            raise ConnectionLost("the connection broke in the middle of an answer") from error


class AsyncWire:
    """`socket_path` is the Unix socket behind `SOCKET_ORIGIN`, if there is one."""

    def __init__(
        self, timeout_seconds: float, context: ssl.SSLContext | None = None, socket_path: str | None = None
    ) -> None:
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=30.0, sock_read=timeout_seconds)
        self._context = context
        self._socket_path = socket_path
        self._sessions: dict[str | None, aiohttp.ClientSession] = {}  # by the socket they connect to

    @asynccontextmanager
    async def send(self, call: Call) -> AsyncIterator[AsyncAnswer]:
        try:
            raw = await self._session_for(call.url).request(
                call.method,
                URL(call.url, encoded=True),
                headers=call.headers,
                data=call.body or None,
                allow_redirects=False,
                skip_auto_headers=("Content-Type", "Accept-Encoding"),
            )
        except BROKEN as error:
            raise ConnectionLost(f"no answer from the server ({type(error).__name__})") from error
        try:
            yield AsyncAnswer(raw)
        finally:
            # Read to its end, the connection is kept; otherwise it is closed.
            raw.release() if raw.content.at_eof() else raw.close()

    async def close(self) -> None:
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    def _session_for(self, url: str) -> aiohttp.ClientSession:
        path = self._socket_path if url.startswith(f"{SOCKET_ORIGIN}/") else None
        session = self._sessions.get(path)
        if session is None:
            session = self._sessions[path] = aiohttp.ClientSession(
                connector=self._connector(path), timeout=self._timeout, auto_decompress=False
            )
        return session

    def _connector(self, path: str | None) -> aiohttp.BaseConnector:
        if path is not None:
            return aiohttp.UnixConnector(path, limit=0)
        return aiohttp.TCPConnector(limit=0, ssl=self._context if self._context is not None else True)
