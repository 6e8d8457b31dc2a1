"""One accepted record and all that follows from it: counts, leases, graves, garbage, and the forks' chain.

Everything here joins the open commit, so a record and its consequences become durable together or not at all.
"""

from functools import partial

from perennial.protocol.removal import after_release, expire
from perennial.protocol.state import (
    Appended,
    Closed,
    Created,
    ForkReleased,
    Record,
    Removed,
    SnapshotPublished,
    SoftDeleted,
    StreamState,
    apply,
    blobs_of,
)
from perennial.service.buckets import Buckets
from perennial.service.commits import Commit, Committer, entry_of
from perennial.service.graves import Graves
from perennial.service.handles import Handles, StreamHandle
from perennial.service.lifetimes import Lifetimes
from perennial.service.quotas import kept_bytes
from perennial.store.interface import Batch
from perennial.store.keys import stream_key


class Changes:
    """Moves streams' accepted states. Appends have shorter ways of their own: see `StreamService.append`."""

    def __init__(
        self, handles: Handles, buckets: Buckets, graves: Graves, committer: Committer, lifetimes: Lifetimes
    ) -> None:
        self._handles = handles
        self._buckets = buckets
        self._graves = graves
        self._committer = committer
        self._lifetimes = lifetimes

    def accept(self, handle: StreamHandle, record: Record) -> None:
        """The state moves, and the open commit takes the record along."""
        commit = self._committer.touch(handle)
        before = handle.accepted
        handle.accepted = after = apply(before, record)
        handle.row_due = True
        if isinstance(record, Appended | Closed):
            assert before is not None, "Created precedes data"
            entry = entry_of(handle, before, record)
            commit.entries[handle.bucket].append(entry)
        else:
            difference = kept_bytes(after) - kept_bytes(before)
            if difference:
                self._buckets.count(handle.bucket, size=difference)
        self._write_consequences(commit, handle, before, after, record)
        if isinstance(record, Created):
            assert after is not None, "just created"
            self._buckets.count(handle.bucket, streams=1)
            handle.feed_row = None
            handle.producers.clear()
            handle.sealed_until, handle.unsealed = after.base, 0
            self._lifetimes.begin(handle, after)

    def remove(self, handle: StreamHandle, record: Removed | SoftDeleted) -> None:
        """Removal, and all that follows: a deleted stream leaves with its last fork, up the chain."""
        state = handle.accepted
        assert state is not None, "only a stream that exists is removed"
        self.accept(handle, record)
        handle.deadline_ms = handle.lease_ms = None
        if isinstance(record, SoftDeleted):
            self._buckets.count(handle.bucket, streams=-1, hidden=1)
            return
        if state.soft_deleted:
            self._buckets.count(handle.bucket, hidden=-1)
        else:
            self._buckets.count(handle.bucket, streams=-1)
        if state.origin is not None:
            self._release(stream_key(state.origin.bucket, state.origin.name))

    def expire(self, handle: StreamHandle) -> None:
        """Remove a stream whose time is over."""
        state = handle.accepted
        assert state is not None, "only a stream that exists expires"
        self.remove(handle, expire(state))
        # The clock removed it, not the disk: it is over for readers too, whatever a crash brings back.
        handle.before_expiry, handle.visible = handle.visible, handle.accepted

    def _release(self, source_key: bytes) -> None:
        source = self._handles.find(source_key)
        assert source is not None, "a fork's reference keeps its source"
        self.accept(source, ForkReleased())
        assert source.accepted is not None, "releasing a reference does not remove"
        last = after_release(source.accepted)
        if isinstance(last, Removed):
            self.remove(source, last)

    def _write_consequences(
        self,
        commit: Commit,
        handle: StreamHandle,
        before: StreamState | None,
        after: StreamState | None,
        record: Record,
    ) -> None:
        """What a record means for stored data beyond the stream's own row."""
        extras = commit.extras
        for blob in blobs_of(before) - blobs_of(after):
            commit.discards.add(blob)
            extras.append(partial(_discard_blob, blob))
        if before is None:
            return
        stream_id, bucket = before.id, handle.bucket
        if isinstance(record, SnapshotPublished):
            offset = record.snapshot.offset
            extras.append(lambda batch: batch.keep_blob(record.snapshot.blob))
            size = offset - max(before.base, before.earliest)
            extras.append(lambda batch: self._graves.dig(batch, bucket, stream_id, max(0, size), offset))
        if isinstance(record, Removed | SoftDeleted):
            own_bytes = before.tail - before.base
            extras.append(lambda batch: self._graves.dig(batch, bucket, stream_id, own_bytes))
        if after is None:
            commit.discards.add(stream_id)
            extras.append(lambda batch: batch.discard(stream_id))
        elif isinstance(record, SnapshotPublished | ForkReleased) and after.earliest and not after.forks:
            # Forks may still need what lies before; with the last one gone, nobody does.
            earliest = after.earliest
            commit.discards.add(stream_id)
            extras.append(lambda batch: batch.discard_before(stream_id, earliest))


def _discard_blob(blob: int, batch: Batch) -> None:
    batch.discard_blob(blob)
