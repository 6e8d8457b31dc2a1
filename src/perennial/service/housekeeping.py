"""Background work in small steps between requests, so that none of it is ever felt."""

import asyncio
import logging
from time import monotonic, thread_time
from typing import Final

from perennial.service.feed_sealing import FeedSealer
from perennial.service.sealing import Sealer
from perennial.service.streams import StreamService
from perennial.service.sweeping import Sweeper
from perennial.store.errors import StoreCorrupt, StoreError

log = logging.getLogger("perennial.housekeeping")

IDLE_SECONDS: Final = 0.2
# While there is work, most of the loop's time still belongs to requests.
BUSY_SECONDS: Final = 0.004
# Of the loop's time. If requests want more than this, what can wait does.
PRESSING_SHARE: Final = 0.75


class Housekeeper:
    """Expiry, removal of deleted data, sealing, and rows that lag, each a step at a time."""

    def __init__(self, service: StreamService) -> None:
        # Do requests want most of the loop's time?
        self._pressed = False
        # What tells: seconds left to requests, and how many of these the loop's thread was at work.
        self._paused = self._worked = 0.0
        self._sealer = Sealer(service.store)
        service.on_growth = self._sealer.grew
        service.on_scattered = self._sealer.hurry
        feed_sealer = FeedSealer(service.store, service.buckets, service.feed, service.graves)
        service.feed.on_growth = feed_sealer.grew
        self._steps = (
            Sweeper(service).step,
            lambda: service.store.collect_garbage(
                lambda number: service.held[number] > 0 or service.committer.is_unsettled(number)
            ),
            lambda: self._sealer.step(self._pressed),
            lambda: feed_sealer.step(self._pressed),
            lambda: service.committer.rows.catch_up(monotonic(), service.committer.touch),
        )
        self._committer = service.committer
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="perennial-housekeeping")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        # After a failed sync the store is only read: what it shows may never have reached the disk.
        while self._committer.failure is None:
            if self._committer.obstacle is not None:
                await self._pause(IDLE_SECONDS)  # until a commit has got through: nothing of ours would
                continue
            busy = False
            for step in self._steps:
                try:
                    busy = step() or busy
                except StoreCorrupt as error:
                    log.error("background work failed and will be tried again: %s", error)
                except StoreError as error:
                    self._committer.stumbled(error)
                    break
                except Exception:
                    log.exception("background work failed and will be tried again")
                await asyncio.sleep(0)
            await self._pause(BUSY_SECONDS if busy else IDLE_SECONDS)

    async def _pause(self, seconds: float) -> None:
        """Leave the loop to requests, and see how much of it they take."""
        began, worked = monotonic(), thread_time()
        await asyncio.sleep(seconds)
        self._paused += monotonic() - began
        self._worked += thread_time() - worked
        # Not after each short pause: requests come in bursts, and wait together for the disk.
        if self._paused >= IDLE_SECONDS:
            self._pressed = self._worked > PRESSING_SHARE * self._paused
            self._paused = self._worked = 0.0
