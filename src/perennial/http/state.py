"""What all connections of a server share. A module of its own, so that imports only point one way."""

from collections.abc import Callable
from typing import Protocol

from perennial.http.exchange import SECURITY_HEADERS, Handler
from perennial.http.heads import KnownHeads
from perennial.http.limits import Limits
from perennial.http.responses import Heads


class Peer(Protocol):
    """A connection, as its server sees it."""

    def check(self, now: float) -> None:
        """Time has passed: is it still worth waiting for?"""

    def drain(self) -> None:
        """The server is going away, `ServerState.draining` is set: answer what has begun, then close."""

    def abort(self) -> None: ...


class ServerState:
    __slots__ = (
        "connections",
        "draining",
        "handler",
        "heads",
        "known_heads",
        "limits",
        "now",
        "on_empty",
        "plain_heads",
        "secure",
        "turned_away",
    )

    def __init__(
        self, handler: Handler, limits: Limits, now: float, unix_time: float, secure: bool = False
    ) -> None:
        self.handler = handler
        self.limits = limits
        self.heads = Heads(unix_time)
        self.plain_heads = Heads(unix_time, SECURITY_HEADERS)
        self.known_heads = KnownHeads(handler.lane)
        self.now = now  # of the monotonic clock, at the last tick
        self.connections: set[Peer] = set()
        self.draining = False
        self.secure = secure  # TLS: which knows no half-closed connections
        self.turned_away = 0  # connections beyond the limit
        self.on_empty: Callable[[], None] | None = None  # the last connection has gone

    def set_time(self, unix_time: float) -> None:
        self.heads.set_time(unix_time)
        self.plain_heads.set_time(unix_time)

    def forget(self, connection: Peer) -> None:
        self.connections.discard(connection)
        if not self.connections and self.on_empty is not None:
            self.on_empty()
