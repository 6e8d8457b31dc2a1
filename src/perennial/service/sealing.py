"""Sealing: runs of small records become one block, by a swap that readers cannot notice.

Reading many small records costs about a microsecond each; a block of the same bytes is one read. A stream
is sealed when enough has gathered behind its last block, in steps that each take about a millisecond.
"""

from collections.abc import Iterable
from typing import Final

from perennial.service.handles import StreamHandle
from perennial.store.blocks import merge, payload_bytes
from perennial.store.interface import Store

BLOCK_BYTES: Final = 1 << 20
BLOCK_RECORDS: Final = 1024
# Records of this size read well as they are; rewriting them would only wear the disk.
LARGE_RECORD_BYTES: Final = 64 * 1024
RECORDS_PER_STEP: Final = 512


class Sealer:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[StreamHandle, None] = {}
        self._run: _Run | None = None

    def grew(self, handles: Iterable[StreamHandle]) -> None:
        """Streams have new durable data: is it time to seal them?"""
        for handle in handles:
            state = handle.visible
            if state is None:
                continue
            if handle.sealed_until is None:
                handle.sealed_until = max(self._store.sealed_until(state.id), state.base)
            if handle.unsealed >= BLOCK_RECORDS or state.tail - handle.sealed_until >= BLOCK_BYTES:
                self._waiting[handle] = None
                handle.sealing = True

    def step(self) -> bool:
        """A millisecond of work; False when there was nothing to do."""
        if self._run is None:
            if not self._waiting:
                return False
            self._run = self._begin(next(iter(self._waiting)))
        if self._run is not None and self._run.gather():
            run, self._run = self._run, None
            run.handle.sealing = False
            self._finish(run)
        return True

    def _begin(self, handle: StreamHandle) -> "_Run | None":
        del self._waiting[handle]
        state = handle.visible
        if state is None or handle.sealed_until is None or state.tail <= handle.sealed_until:
            handle.sealing = False
            return None
        return _Run(self._store, handle, state.id, handle.sealed_until, state.tail)

    def _finish(self, run: "_Run") -> None:
        handle, state = run.handle, run.handle.visible
        if state is None or state.id != run.stream_id or not run.values:
            return  # deleted meanwhile
        if run.first + payload_bytes(run.values[0]) <= state.earliest and not state.forks:
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


class _Run:
    """The next block of a stream in the making: records as they are stored."""

    def __init__(self, store: Store, handle: StreamHandle, stream_id: int, start: int, tail: int) -> None:
        self.handle = handle
        self.stream_id = stream_id
        self.values: list[bytes] = []
        # Where they begin and end.
        self.first = self.end = start
        self._store = store
        self._tail = tail

    def gather(self) -> bool:
        """Take in some more records; True when the block is complete."""
        offsets, values = self._store.block_values(self.stream_id, self.end, self._tail, RECORDS_PER_STEP)
        if not values:
            return True
        if not self.values:
            self.first = offsets[0]
        ends = (*offsets[1:], offsets[-1] + payload_bytes(values[-1]))
        if ends[-1] - self.first <= BLOCK_BYTES and max(map(len, values)) < LARGE_RECORD_BYTES:
            self.values += values
            self.end = ends[-1]
            return len(values) < RECORDS_PER_STEP or len(self.values) >= 4 * BLOCK_RECORDS
        for offset, value, end in zip(offsets, values, ends, strict=True):
            large = end - offset >= LARGE_RECORD_BYTES
            if self.values and (large or end - self.first > BLOCK_BYTES):
                return True
            self.values.append(value)
            self.end = end
            if large:
                return True
        return len(values) < RECORDS_PER_STEP
