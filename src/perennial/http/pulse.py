"""How late the event loop is: a timer that should ring every quarter of a second, and when it does."""

import asyncio
from time import perf_counter
from typing import Final

from perennial.service.measures import SECONDS, Histogram

BEAT_SECONDS: Final = 0.25


class Pulse:
    def __init__(self) -> None:
        self.lag = Histogram(SECONDS)
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        self._due = perf_counter() + BEAT_SECONDS
        self._timer = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._beat)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        self.lag.observe(max(0.0, perf_counter() - self._due))
        self.start()
