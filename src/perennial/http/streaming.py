"""Sends a long body piece by piece, at the pace of the peer."""

import logging
from collections.abc import Callable, Iterator

from perennial.http.exchange import Exchange

log = logging.getLogger("perennial.http")


class Pump:
    """Draws the next piece only when the connection has taken the last one; nothing piles up."""

    __slots__ = ("_exchange", "_pieces", "_release")

    def __init__(self, exchange: Exchange, pieces: Iterator[bytes], release: Callable[[], None]) -> None:
        self._exchange = exchange
        self._pieces = pieces
        self._release: Callable[[], None] | None = release

    def start(self) -> None:
        """After `exchange.begin`."""
        self._exchange.on_closed = self._done
        self._exchange.on_writable = self._go_on
        self._go_on()

    def _go_on(self) -> None:
        exchange = self._exchange
        try:
            while exchange.writable and not exchange.closed:
                piece = next(self._pieces, None)
                if piece is None:
                    self._done()
                    exchange.end()
                    return
                exchange.send(piece)
        except Exception:
            # The answer has begun: breaking it off is the only way left to say that it is incomplete.
            log.exception("failed while sending a body")
            self._done()
            exchange.abort()

    def _done(self) -> None:
        if self._release is not None:
            self._release()
            self._release = None
