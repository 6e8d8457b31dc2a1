"""Sealing: runs of small records become one block, by a swap that readers cannot notice.

Reading many small records costs about a microsecond each; a block of the same bytes is one read. A stream
is sealed when enough has gathered behind its last block, in steps that each take about a millisecond.

Sealing takes a fifth as long as taking the records in. While requests want nearly all of the loop's time it
waits, unless a reader has met so many small records that it is worth it now.
"""

import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from perennial.service.handles import StreamHandle
from perennial.store.blocks import merge, payload_bytes
from perennial.store.errors import StoreError
from perennial.store.interface import Store

log = logging.getLogger("perennial.sealing")

BLOCK_BYTES: Final = 1 << 20
BLOCK_RECORDS: Final = 1024
# Records of this size read well as they are; rewriting them would only wear the disk.
LARGE_RECORD_BYTES: Final = 64 * 1024
RECORDS_PER_STEP: Final = 512


class Sealer:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[StreamHandle, None] = {}
        # Those of them that somebody reads.
        self._urgent: dict[StreamHandle, None] = {}
        self._run: _Run | None = None

    def grew(self, handles: Iterable[StreamHandle]) -> None:
        """Streams have new durable data: is it time to seal them?"""
        for handle in handles:
            state = handle.visible
            if state is None:
                continue
            if handle.sealed_until is None:
                try:
                    handle.sealed_until = max(self._store.sealed_until(state.id), state.base)
                except StoreError as error:  # no reason to keep the others' readers waiting
                    log.error("%s/%s cannot be sealed: %s", handle.bucket, handle.name, error)
                    continue
            if handle.unsealed >= BLOCK_RECORDS or state.tail - handle.sealed_until >= BLOCK_BYTES:
                self._waiting[handle] = None
                handle.sealing = True

    def hurry(self, handle: StreamHandle) -> None:
        """A reader has found it in many small records, more than have been counted since it was loaded."""
        handle.unsealed = max(handle.unsealed, BLOCK_RECORDS)
        self.grew((handle,))
        if handle in self._waiting:
            self._urgent[handle] = None

    def step(self, pressed: bool = False) -> bool:
        """A millisecond of work; False when there was nothing to do, or, if requests press, to do now."""
        if self._run is None:
            waiting = self._urgent if pressed else self._waiting
            if not waiting:
                return False
            self._run = self._begin(next(iter(waiting)))
        if self._run is not None:
            self._go_on(self._run)
        return True

    def _begin(self, handle: StreamHandle) -> "_Run | None":
        del self._waiting[handle]
        self._urgent.pop(handle, None)
        state = handle.visible
        sealed = handle.sealed_until
        if state is None or sealed is None or state.tail <= sealed or _is_replaced(handle, state.id):
            handle.sealing = False
            return None
        source = self._store.block_values(state.id, sealed, state.tail)
        return _Run(handle, state.id, source)

    def _go_on(self, run: "_Run") -> None:
        # Over, unless it turns out to go on: one that meets damage has ended too, and the next has its turn.
        self._run = None
        run.handle.sealing = run.handle in self._waiting
        if run.gather():
            self._finish(run)
        else:
            self._run = run
            run.handle.sealing = True

    def _finish(self, run: "_Run") -> None:
        handle, state = run.handle, run.handle.visible
        if state is None or state.id != run.stream_id or _is_replaced(handle, state.id) or not run.values:
            return  # deleted meanwhile
        if run.first + payload_bytes(run.first, run.values[0]) <= state.earliest and not state.forks:
            return  # trimmed meanwhile: the merged block would bring back what is gone
        batch = self._store.batch()
        if len(run.values) > 1:
            batch.put_sealed(run.stream_id, run.first, run.end, merge(run.values))
        else:
            batch.mark_sealed(run.stream_id, run.end)
        # No sync: if a crash undoes this, the records are there as they were.
        self._store.write(batch)
        handle.sealed_until = run.end
        handle.unsealed = max(0, handle.unsealed - len(run.values))
        self.grew((handle,))


def _is_replaced(handle: StreamHandle, stream_id: int) -> bool:
    """Then it speaks of the stream to come: how far that is sealed, and how many records follow."""
    return handle.accepted is None or handle.accepted.id != stream_id


class _Run:
    """The next block of a stream in the making: records as they are stored."""

    def __init__(self, handle: StreamHandle, stream_id: int, source: Iterator[tuple[int, bytes]]) -> None:
        self.handle = handle
        self.stream_id = stream_id
        self.values: list[bytes] = []
        # Where they begin and end.
        self.first = self.end = 0
        self._source = source

    def gather(self) -> bool:
        """Take in some more records; True when the block is complete."""
        taken = 0
        for offset, value in islice(self._source, RECORDS_PER_STEP):
            taken += 1
            end = offset + payload_bytes(offset, value)
            large = end - offset >= LARGE_RECORD_BYTES
            if not self.values:
                self.first = offset
            elif large or end - self.first > BLOCK_BYTES or offset != self.end:
                return True
            self.values.append(value)
            self.end = end
            if large or len(self.values) >= 4 * BLOCK_RECORDS:
                return True
        return taken < RECORDS_PER_STEP
