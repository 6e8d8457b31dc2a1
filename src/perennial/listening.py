"""Listening as the settings say: an address or a Unix socket, TLS, limits, and what SIGHUP brings in anew."""

import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from perennial.http.binding import bind
from perennial.http.limits import Limits
from perennial.http.server import Server
from perennial.settings import Settings, SettingsError

if TYPE_CHECKING:
    from perennial.http.application import Application

log = logging.getLogger("perennial")

# Files the process needs besides its connections: the store's tables and logs, upstreams, pipes.
OTHER_FILES: Final = 640
FEWEST_CONNECTIONS: Final = 64


class Listener:
    """In two steps: the address is taken with `bind`, and served once there is an application."""

    def __init__(self, settings: Settings, again: Callable[[], Settings] | None = None) -> None:
        """`again` loads the settings anew; without it, a reload reads the same files again."""
        self._settings = settings
        self._again = again or (lambda: settings)
        self.tls = _tls_context(settings) if settings.tls_cert else None
        self.limits = Limits(
            target_bytes=settings.max_url,
            header_bytes=settings.max_headers,
            connections=allow_files_for(settings.max_connections),
        )
        self.sockets: Sequence[socket.socket] = ()
        self._application: Application | None = None
        self._server: Server | None = None

    @property
    def url(self) -> str:
        """Where clients find the server."""
        if self._settings.unix_socket:
            return f"unix:{self._settings.unix_socket}"
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        port = self.sockets[0].getsockname()[1]
        return f"{'http' if self.tls is None else 'https'}://{host}:{port}"

    def bind(self) -> None:
        """Take the address, or raise `OSError`; nobody can connect yet."""
        settings = self._settings
        self.sockets = bind(settings.host, settings.port, settings.unix_socket or None)

    async def start(self, application: "Application") -> None:
        self._application = application
        self._server = application.metrics.door = Server(application, tls=self.tls, limits=self.limits)
        await self._server.start(self.sockets)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()
        if self._settings.unix_socket:
            with suppress(FileNotFoundError):
                os.unlink(self._settings.unix_socket)

    def reload(self) -> None:
        """Other tokens and keys, and for connections to come another certificate. Never fails half-way."""
        try:
            settings = self._again()
            if self.tls is not None:
                _tls_context(settings)  # a broken pair must not replace a good one
            if self._application is not None:
                self._application.reload(settings)
            if self.tls is not None:
                self.tls.load_cert_chain(settings.tls_cert, settings.tls_key)
        except (SettingsError, OSError) as error:
            log.error("reload refused, everything stays as it was: %s", error)
        else:
            log.info("reloaded tokens, keys and certificates; other settings need a restart")


def _tls_context(settings: Settings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:  # ssl.SSLError is one
        raise SettingsError(
            f"cannot use tls_cert {settings.tls_cert} with tls_key {settings.tls_key}: {error}"
        ) from error
    return context


def allow_files_for(connections: int) -> int:
    """Raise the limit of open files as far as it may go; how many connections that leaves room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
        except (OSError, ValueError):
            log.warning("the limit of %d open files could not be raised", soft)
        if soft < wanted:
            log.warning("at most %d connections: the limit is %d open files", soft - OTHER_FILES, soft)
    room = connections if soft == resource.RLIM_INFINITY else min(connections, soft - OTHER_FILES)
    return max(FEWEST_CONNECTIONS, room)
