"""Listening as the settings say: an address or a Unix socket, TLS, limits, and what SIGHUP brings in anew."""

import logging
import resource
import ssl
from collections.abc import Callable
from typing import Final

from perennial.http.application import Application
from perennial.http.limits import Limits
from perennial.http.server import Server
from perennial.settings import Settings, SettingsError

log = logging.getLogger("perennial")

# Files the process needs besides its connections: the store's tables and logs, upstreams, pipes.
OTHER_FILES: Final = 640
FEWEST_CONNECTIONS: Final = 64


class Listener:
    def __init__(
        self, application: Application, settings: Settings, again: Callable[[], Settings] | None = None
    ) -> None:
        """`again` loads the settings anew; without it, a reload reads the same files again."""
        self._application = application
        self._settings = settings
        self._again = again or (lambda: settings)
        self._tls = _tls_context(settings) if settings.tls_cert else None
        self._server = Server(
            application,
            settings.host,
            settings.port,
            path=settings.unix_socket or None,
            tls=self._tls,
            limits=Limits(
                target_bytes=settings.max_url,
                header_bytes=settings.max_headers,
                connections=allow_files_for(settings.max_connections),
            ),
        )
        application.metrics.door = self._server

    @property
    def url(self) -> str:
        """Where clients find the server."""
        if self._settings.unix_socket:
            return f"unix:{self._settings.unix_socket}"
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self._server.port}"

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop()

    def reload(self) -> None:
        """Other tokens and keys, and for connections to come another certificate. Never fails half-way."""
        try:
            settings = self._again()
            if self._tls is not None:
                _tls_context(settings)  # a broken pair must not replace a good one
            self._application.reload(settings)
            if self._tls is not None:
                self._tls.load_cert_chain(settings.tls_cert, settings.tls_key)
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
