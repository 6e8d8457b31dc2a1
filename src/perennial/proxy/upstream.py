"""Asking an upstream: one request, no redirects, no cookies, no decoding; its body exactly as sent."""

import asyncio
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from perennial.protocol.forwarding import upstream_response_headers
from perennial.proxy.allowlist import UpstreamUrl
from perennial.proxy.errors import ResponseBroken, UpstreamNotAllowed, UpstreamTimeout, UpstreamUnreachable
from perennial.proxy.guard import AddressRefused, Guard

# Bytes that may wait in one connection before its peer is held back.
READ_BUFFER_BYTES: Final = 64 * 1024
HEADER_LIMIT_BYTES: Final = 64 * 1024
ERROR_BODY_BYTES: Final = 64 * 1024
ERROR_BODY_SECONDS: Final = 5.0
# What aiohttp would add of its own accord. Whatever the client did not send, the upstream does not get.
UNASKED_HEADERS: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class Upstream:
    """A response whose headers have come and whose body is on its way."""

    __slots__ = ("_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers = upstream_response_headers(response.raw_headers)

    async def read(self) -> bytes:
        """What has arrived, waiting for it if need be; empty at the end. Raises `ResponseBroken`."""
        content = self._response.content
        if content.exception() is None:
            try:
                return await content.readany()
            except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError):
                pass  # but first, what came before the break
        kept = self.arrived()
        if kept:
            return kept
        raise ResponseBroken("UPSTREAM_ERROR", "the upstream broke off before its response was complete")

    def arrived(self) -> bytes:
        """What has arrived and was not read, without waiting."""
        content = self._response.content
        if content.at_eof() or not isinstance(content, aiohttp.StreamReader):
            return b""
        # The public way refuses once the connection has broken, and would drop bytes that did arrive.
        kept: bytes = content._read_nowait(-1) if content._buffer else b""
        return kept

    @property
    def complete(self) -> bool:
        """The whole body has arrived and been read."""
        return self._response.content.at_eof()

    async def error_body(self) -> bytes:
        """The beginning of a body that explains a refusal; never long, and never waited for long."""
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(ERROR_BODY_SECONDS):
                while size < ERROR_BODY_BYTES and (piece := await self.read()):
                    pieces.append(piece)
                    size += len(piece)
        except (TimeoutError, ResponseBroken):
            pass
        return b"".join(pieces)[:ERROR_BODY_BYTES]

    def close(self) -> None:
        """Drop the connection, unless the response is complete and another request may use it."""
        if self._response.content.is_eof():
            self._response.release()
        else:
            self._response.close()


class Upstreams:
    """All connections to upstreams."""

    def __init__(
        self, guard: Guard, header_timeout_seconds: float, resolver: AbstractResolver | None = None
    ) -> None:
        self._header_timeout = header_timeout_seconds
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,  # callers are limited one by one, see `callers`
                resolver=resolver,
                ttl_dns_cache=10,
                socket_factory=guard.make_socket,
            ),
            # One caller's cookies are nobody else's business.
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=UNASKED_HEADERS,
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None),
            read_bufsize=READ_BUFFER_BYTES,
            max_line_size=HEADER_LIMIT_BYTES,
            max_field_size=HEADER_LIMIT_BYTES,
        )

    async def ask(
        self, method: str, url: UpstreamUrl, headers: list[tuple[str, str]], body: bytes
    ) -> Upstream:
        """The response, as soon as its headers are complete."""
        try:
            async with asyncio.timeout(self._header_timeout):
                response = await self._session.request(
                    method,
                    URL(str(url), encoded=True),
                    headers=[(name, _as_sent(value)) for name, value in headers],
                    data=body or None,
                    allow_redirects=False,
                )
        except TimeoutError:
            raise UpstreamTimeout(
                f"the upstream sent no response headers within {self._header_timeout:g} seconds"
            ) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Without the cause: its text may quote the URL, and a URL may hold credentials.
            raise _unreachable(error) from None
        return Upstream(response)

    async def close(self) -> None:
        await self._session.close()


def _as_sent(value: str) -> str:
    """aiohttp writes header values as UTF-8; this makes it write the bytes the client sent."""
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return value


def _unreachable(error: Exception) -> UpstreamUnreachable | UpstreamNotAllowed:
    if _was_refused(error):
        return UpstreamNotAllowed("Upstream-URL leads to a private, loopback or link-local address")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return UpstreamUnreachable("the upstream's host name could not be resolved")
    if isinstance(error, aiohttp.ClientSSLError):
        return UpstreamUnreachable("no secure connection to the upstream could be made")
    if isinstance(error, aiohttp.ClientConnectorError):
        return UpstreamUnreachable("the upstream could not be connected to")
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionError):
        return UpstreamUnreachable("the upstream closed the connection without an answer")
    return UpstreamUnreachable(
        f"the upstream gave no answer that could be understood ({type(error).__name__})"
    )


def _was_refused(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, AddressRefused) or isinstance(getattr(error, "os_error", None), AddressRefused):
            return True
        error = error.__cause__ or error.__context__
    return False
