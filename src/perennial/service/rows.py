"""When a stream's row is written.

A row holds a stream's whole state. Writing it again with every append would be half of what the store has
to sort in. So the row of a stream that grows all the time is marked as lagging, and then left alone while
nothing but the tail moves: whoever loads a lagging row asks the stream's last block for the tail. When the
stream has been quiet for a moment it gets an exact row again.
"""

from collections.abc import Callable, Iterable
from typing import Final

from perennial.service.handles import StreamHandle
from perennial.store.interface import Batch, StreamRow

# A stream that grew in this period or in the one before is busy, else it is quiet.
PERIOD_SECONDS: Final = 1.0
ROWS_PER_STEP: Final = 64


class Rows:
    """Writes the rows of a commit's streams, and remembers those that lag."""

    def __init__(self) -> None:
        self._period = 0
        self._period_ends = 0.0
        self._lagging: dict[StreamHandle, None] = {}
        # Those that have become quiet and wait for their exact rows.
        self._quiet: list[StreamHandle] = []

    def encode(self, handles: Iterable[StreamHandle], batch: Batch) -> None:
        period = self._period
        for handle in handles:
            unmoved = not handle.row_due and handle.stored_lease_ms == handle.lease_ms
            if unmoved and handle.row_lags and handle.lagging:
                handle.grown_in = period  # as busy streams do, and that is all
            else:
                self._encode(handle, batch)

    def _encode(self, handle: StreamHandle, batch: Batch) -> None:
        renewed = _encode_deadline(handle, batch)
        if handle.accepted is None:
            batch.remove_stream(handle.key)
            handle.row_lags = handle.lagging = False
            return
        lags = not handle.row_due and (handle.row_lags or self._is_busy(handle))
        if handle.row_due or renewed or not lags or not handle.row_lags:
            batch.put_stream(handle.key, StreamRow(handle.accepted, handle.lease_ms, lags))
            handle.row_lags = lags
        if lags and not handle.lagging:
            handle.lagging = True
            self._lagging[handle] = None
        if not handle.row_due:
            handle.grown_in = self._period
        handle.row_due = False

    def undo(self, handle: StreamHandle) -> None:
        """A commit failed. Whatever the row says now, the next commit of this stream writes it."""
        handle.row_due = True

    def catch_up(self, now: float, touch: Callable[[StreamHandle], object]) -> bool:
        """Let a commit write the exact rows of a few quiet streams; False when there are none."""
        if not self._quiet and now >= self._period_ends:
            self._period += 1
            self._period_ends = now + PERIOD_SECONDS
            self._quiet = [handle for handle in self._lagging if not self._is_busy(handle)]
        some, self._quiet = self._quiet[:ROWS_PER_STEP], self._quiet[ROWS_PER_STEP:]
        for handle in some:
            if self._is_busy(handle):
                continue  # again, since it began to wait
            del self._lagging[handle]
            if handle.lagging:
                handle.lagging = False
                handle.row_due = True
                touch(handle)
        return bool(some)

    def _is_busy(self, handle: StreamHandle) -> bool:
        return handle.grown_in >= self._period - 1


def _encode_deadline(handle: StreamHandle, batch: Batch) -> bool:
    """Has the lease moved? The row repeats it."""
    stored, lease = handle.stored_lease_ms, handle.lease_ms
    if stored == lease:
        return False
    if stored is not None:
        batch.remove_deadline(stored, handle.key)
    if lease is not None:
        batch.put_deadline(lease, handle.key)
    handle.stored_lease_ms = lease
    return True
