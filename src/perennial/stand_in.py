"""A process that answers at the server's address until the server can.

Opening the store may replay hundreds of megabytes of its log, and the binding to it holds the interpreter's
lock all the while: no loop and no thread of this process could answer. So a fork of it does. It shares the
listening sockets, which stay open when it ends, so nobody who connects is turned away in between.
"""

import asyncio
import logging
import os
import signal
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn

from perennial.http.limits import Limits
from perennial.http.recovering import REASON, Recovering
from perennial.http.server import Server

log = logging.getLogger("perennial")

# When the server is ready: for connections that were just accepted to be made, and for requests that were not
# answered yet. The server waits for both, so they are short.
ACCEPTING_SECONDS: Final = 0.02
GRACE_SECONDS: Final = 0.2


class StandIn:
    def __init__(self, child: int | None, leash: int) -> None:
        self._child = child
        self._leash: int | None = leash

    def leave(self) -> None:
        """Returns when it has stopped accepting connections, and gone."""
        leash, self._leash = self._leash, None
        if leash is not None:
            os.close(leash)
            if self._child is not None:
                os.waitpid(self._child, 0)


@contextmanager
def standing_in(
    sockets: Sequence[socket.socket], limits: Limits, tls: ssl.SSLContext | None
) -> Iterator[StandIn]:
    """Before this process has threads: a fork has none of them, nor what they were about to unlock."""
    held, leash = os.pipe()
    try:
        child: int | None = os.fork()
    except OSError as error:
        log.warning("nobody answers while the store opens: %s", error)
        child = None
    if child == 0:
        os.close(leash)
        _run(sockets, limits, tls, held)
    os.close(held)
    stand_in = StandIn(child, leash)
    try:
        yield stand_in
    finally:
        stand_in.leave()


def _run(sockets: Sequence[socket.socket], limits: Limits, tls: ssl.SSLContext | None, held: int) -> NoReturn:
    """In the child, which never returns to the code it was forked from."""
    try:
        # Signals are for the server. Its end, however it comes, ends the child: nobody holds the leash then.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        asyncio.run(_answer(sockets, limits, tls, held))
    except BaseException:
        log.exception("nobody answers while the store opens")
    finally:
        os._exit(0)


async def _answer(
    sockets: Sequence[socket.socket], limits: Limits, tls: ssl.SSLContext | None, held: int
) -> None:
    server = Server(Recovering(), tls=tls, limits=limits)
    await server.start(sockets)
    log.info("%s; until it is open, requests are answered 503", REASON)
    released = asyncio.Event()
    asyncio.get_running_loop().add_reader(held, released.set)
    await released.wait()
    server.stop_listening()
    # Whoever has connected to us shall have an answer, also if we have not seen them yet.
    await asyncio.sleep(ACCEPTING_SECONDS)
    await server.wait_until_left(GRACE_SECONDS)
