"""The real application on a real store, behind connections without a network, on a loop run by the test."""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from perennial.http.application import Application
from perennial.http.connection import Connection
from perennial.http.exchange import Lane, Request
from perennial.http.limits import Limits
from perennial.http.parsing import PIECE_BYTES, RequestReader
from perennial.http.state import ServerState
from perennial.proxy.operations import Proxy
from perennial.settings import Settings
from tests.http.wire import FakeTransport
from tests.service.world import World


class WithoutLanes(Application):
    def lane(self, request: Request) -> Lane | None:
        return None


class Peer:
    """One connection to it."""

    def __init__(self, state: ServerState) -> None:
        self.transport = FakeTransport()
        self.connection = Connection(state)
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)
        self._ended = self._lost = False

    @property
    def is_open(self) -> bool:
        return not (self._ended or self.transport.closing)

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            if self.is_open:
                self.connection.data_received(piece)
        self._notice()

    def end(self) -> None:
        """Half close."""
        if self.is_open:
            self._ended = True
            if not self.connection.eof_received():
                self.transport.close()
        self._notice()

    def leave(self) -> None:
        self.transport.abort()
        self._notice()

    def stall(self) -> None:
        self.transport.stuck = True

    def go_on(self) -> None:
        self.transport.release()
        self._notice()

    def take(self) -> bytes:
        """What it has heard since it was last asked."""
        self._notice()
        heard, self.transport.sent = self.transport.sent, b""
        return heard

    def _notice(self) -> None:
        if self.transport.closing and not self.transport.unsent and not self._lost:
            self._lost = True
            self.connection.connection_lost(None)


class Served:
    """Nothing becomes durable before `settle`, so what happens does not depend on the speed of a disk."""

    def __init__(self, directory: Path, lanes: bool = True, **settings: Any) -> None:
        self.world = World(directory)
        chosen = Settings(data=str(directory), **settings)
        make = Application if lanes else WithoutLanes
        self._proxy = self.do(lambda: Proxy(self.world.service, chosen))
        self.app: Application = self.do(lambda: make(self.world.service, chosen, self._proxy))
        self.state = ServerState(self.app, Limits(), now=1000.0, unix_time=0.0)
        self.world.store.skip_disk = True  # nobody cuts the power here
        self.world.store.hold()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.do(self.app.drain)
        self.world.store.obey_no_more()
        self.world.loop.run_until_complete(self._proxy.stop())
        self.world.__exit__(kind, error, trace)

    def do(self, act: Callable[[], Any]) -> Any:
        """On the loop, as everything that arrives there."""

        async def acting() -> Any:
            return act()

        return self.world.loop.run_until_complete(acting())

    def peer(self) -> Peer:
        peer: Peer = self.do(lambda: Peer(self.state))
        return peer

    def settle(self) -> None:
        self.world.store.release()
        self.world.settle()
        self.world.turn()
        while self.world.service.committer.unsettled_seconds:
            self.world.settle()
            self.world.turn()
        self.world.store.hold()

    def say(self, peer: Peer, *pieces: bytes) -> bytes:
        """What the peer hears in answer, when it is durable."""
        self.do(lambda: peer.send(*pieces))
        self.settle()
        return peer.take()

    def drain(self) -> None:
        self.state.draining = True
        for connection in tuple(self.state.connections):
            connection.drain()

    def tallies(self) -> list[tuple[str, str, int, int]]:
        return list(self.app._traffic)

    def learn(self, *messages: bytes) -> None:
        """Know the heads of these, as if they had come before, without having answered any."""
        for message in messages:
            for _ in range(2):
                reader = RequestReader(self.app, self.state.limits, self.state, self.state.known_heads, "")
                for start in range(0, len(message), PIECE_BYTES):
                    reader.feed(message[start : start + PIECE_BYTES])
