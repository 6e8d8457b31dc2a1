"""Sweeping: streams whose time has come go without waiting for someone to ask for them."""

from typing import Final

from perennial.service.clock import LEAP_MS
from perennial.service.streams import StreamService

STREAMS_PER_STEP: Final = 64
LOOK_THROUGH_MS: Final = 60_000
EVERY: Final = 1 << 40


class Sweeper:
    def __init__(self, service: StreamService) -> None:
        self._service = service

        self._looked_through_ms = 0

    def step(self) -> bool:
        """Look at the earliest few deadlines that have passed; False when there is none."""
        service, deadlines = self._service, self._service.deadlines
        idle_ms, wall_ms = deadlines.idle_ms(), deadlines.wall_ms()
        # Which clock a deadline is for, only its stream knows; by the slower one it is due in any case.
        due = service.store.due(min(idle_ms, wall_ms), STREAMS_PER_STEP)
        if len(due) < STREAMS_PER_STEP and abs(idle_ms - wall_ms) > LEAP_MS:
            due = self._look_through(idle_ms, max(idle_ms, wall_ms)) or due
        for _, key in due:
            service.expire_if_due(key)
        return len(due) == STREAMS_PER_STEP

    def _look_through(self, idle_ms: int, now_ms: int) -> list[tuple[int, bytes]]:
        """After a leap of the wall clock: all that are due by either clock, now and then."""
        if idle_ms - self._looked_through_ms < LOOK_THROUGH_MS:
            return []
        self._looked_through_ms = idle_ms
        return self._service.store.due(now_ms, EVERY)
