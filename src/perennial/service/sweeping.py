"""Sweeping: streams whose time has come go without waiting for someone to ask for them."""

from typing import Final

from perennial.service.streams import StreamService

STREAMS_PER_STEP: Final = 64


class Sweeper:
    def __init__(self, service: StreamService) -> None:
        self._service = service

    def step(self) -> bool:
        """Look at the earliest few deadlines that have passed; False when there is none."""
        due = self._service.store.due(self._service.now_ms(), STREAMS_PER_STEP)
        for _, key in due:
            self._service.expire_if_due(key)
        return len(due) == STREAMS_PER_STEP
