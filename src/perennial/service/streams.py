"""The operations on streams. Each looks a handle up, asks `protocol` for a decision, and commits records.

Answers are given through a reply function, at once or when the commit they rest on is durable: an answer
never speaks of something that a crash could still take back, and that includes "you sent this before".
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from perennial.protocol.append import Append, append_plainly, decide_append
from perennial.protocol.create import Create, decide_create, decide_fork
from perennial.protocol.names import PROXY_BUCKET
from perennial.protocol.rejections import BucketMissing, OffsetTrimmed, Rejected, StreamMissing
from perennial.protocol.removal import decide_delete
from perennial.protocol.snapshots import NOT_A_BOUNDARY, judge_offset
from perennial.protocol.state import (
    Appended,
    Closed,
    ForkTaken,
    ProducerState,
    Removed,
    Snapshot,
    SnapshotPublished,
    SoftDeleted,
    StreamState,
    apply,
)
from perennial.service.buckets import Buckets
from perennial.service.changes import Changes
from perennial.service.clock import Clock, Deadlines, OneClock, system_clock
from perennial.service.commits import Audience, Committer, NotStored, Reply, entry_of, feed_row_of
from perennial.service.feed import Feed
from perennial.service.graves import Graves
from perennial.service.handles import Handles, StreamHandle, Watcher
from perennial.service.lifetimes import Lifetimes
from perennial.service.quotas import Quotas, kept_bytes
from perennial.service.reading import Chunk, anchor_at, read_chunk
from perennial.service.uploads import Upload
from perennial.store.interface import Store
from perennial.store.keys import stream_key

# Producers a handle remembers before it asks the store again.
KNOWN_PRODUCERS: Final = 1024


class StreamService:
    """All streams of one store. Lives on one event loop and is used from its thread only."""

    def __init__(self, store: Store, clock: Clock = system_clock, deadlines: Deadlines | None = None) -> None:
        self.store = store
        self._clock = clock
        self.deadlines = deadlines or OneClock(clock)
        self.buckets = Buckets(store, clock() // 1000)
        self.handles = Handles(store)
        self.graves = Graves(store)
        self.feed = Feed(store, self.buckets, self.graves)
        self.committer = Committer(
            store, self.buckets, clock, self._became_visible, self.feed.grew, self._forget_changes
        )
        self.lifetimes = Lifetimes(self.deadlines, self.committer)
        self._changes = Changes(self.handles, self.buckets, self.graves, self.committer, self.lifetimes)
        # Ids of streams and blobs that someone is reading piece by piece; not to be cleaned up meanwhile.
        self.held: Counter[int] = Counter()
        # Told of the streams whose data grew; sealing hooks in here.
        self.on_growth: Callable[[Iterable[StreamHandle]], None] = lambda handles: None
        # Told of those that a reader found in many small records, and so is sealing.
        self.on_scattered: Callable[[StreamHandle], None] = lambda handle: None
        # None: buckets may grow as long as the disk does.
        self.quotas: Quotas | None = None
        # By bucket: told of a stream about to be closed, while its last words can still be written.
        self.before_close: dict[str, Callable[[str], None]] = {}

    def now_ms(self) -> int:
        return self._clock() // 1000

    # Looking up

    def find(self, bucket: str, name: str) -> StreamHandle | None:
        """The handle of a stream that has been accepted and has not expired; it may be soft-deleted."""
        handle = self.handles.find(stream_key(bucket, name))
        if handle is None or handle.accepted is None:
            return None
        if handle.deadline_ms is not None and self.lifetimes.is_over(handle):
            self._changes.expire(handle)
            # With forks it is only soft-deleted, and answers differently from one that never was.
            return None if handle.gone else handle
        return handle

    def look_up(self, bucket: str, name: str) -> StreamHandle | None:
        """As `find`, for readers: a removal is nothing to them until it is durable."""
        handle = self.find(bucket, name) or self.handles.peek(stream_key(bucket, name))
        return None if handle is None or handle.visible is None else handle

    def touch(self, handle: StreamHandle) -> None:
        """An access that restarts an idle window."""
        state = handle.accepted
        if state is not None:
            self.lifetimes.restart(handle, state)

    def watch(self, handle: StreamHandle, watcher: Watcher) -> None:
        handle.watchers.add(watcher)

    def unwatch(self, handle: StreamHandle, watcher: Watcher) -> None:
        """A stream with a live reader does not expire; its window restarts when the reader leaves."""
        handle.watchers.discard(watcher)
        self.touch(handle)

    def read(self, handle: StreamHandle, start: int, limit: int) -> Chunk | Rejected:
        state = handle.visible
        if state is None:
            return StreamMissing()
        if start < state.earliest:
            return OffsetTrimmed(state.earliest)
        chunk = read_chunk(self.store, state, start, limit)
        if isinstance(chunk, Chunk) and chunk.scattered:
            self.on_scattered(handle)
        return chunk

    def hold(self, *ids: int) -> Callable[[], None]:
        """Keep what is stored under these ids until the returned function is called."""
        self.held.update(ids)

        def release() -> None:
            self.held.subtract(ids)
            for number in ids:
                if not self.held[number]:
                    del self.held[number]

        return release

    # Changing

    def append(self, bucket: str, name: str, command: Append, reply: Reply) -> None:
        if self.committer.failure is not None and self._refuses(reply):
            return
        if command.close and bucket in self.before_close:
            self.before_close[bucket](name)
        handle = self.find(bucket, name)
        if handle is None:
            reply(self._missing(bucket), None)
            return
        state = handle.accepted
        claim = command.producer
        known = None if claim is None else self._producer(handle, claim.id)
        outcome = decide_append(state, known, command, self.now_ms())
        if isinstance(outcome, (Appended, Closed)):
            assert state is not None, "decide_append refuses a missing stream"
            if self.quotas is not None and isinstance(outcome, Appended):
                refused = self._beyond_quota(bucket, len(outcome.payload))
                if refused is not None:
                    reply(refused, None)
                    return
            after = apply(state, outcome)
            assert after is not None, "growing does not remove"
            commit = self.committer.touch(handle)
            entry = entry_of(handle, state, outcome)
            commit.entries[bucket].append(entry)
            handle.accepted = after
            if after.closed or command.seq is not None:  # which only the row tells
                handle.row_due = True
            handle.unsealed += 1
            if claim is not None:
                producer = ProducerState(claim.epoch, claim.seq)
                handle.producers[claim.id] = producer
                commit.producers[(state.id, claim.id)] = producer
            if after.ttl_seconds is not None:
                self.lifetimes.restart(handle, after)
            commit.replies.append((reply, outcome, after))
        else:
            if not isinstance(outcome, Rejected):
                self.touch(handle)
            self.committer.answer(handle, reply, outcome, state)

    def append_plainly(
        self, key: bytes, content_type: str, body: bytes, sender: object, audience: Audience
    ) -> bool:
        """As `append`, for a body that needs no second look; False if it does, and nothing has happened.

        The content type is not JSON: such bodies are looked into.
        """
        handle = self.handles.peek(key)
        if handle is None or handle.deadline_ms is not None or self.quotas is not None:
            return False
        before, committer = handle.accepted, self.committer
        if before is None or committer.failure is not None:
            return False
        commit = committer.open
        now_ms = commit.opened_ms
        if not now_ms:
            now_ms = self.now_ms()
        elif now_ms < before.last_write_ms:
            now_ms = before.last_write_ms
        after = append_plainly(before, content_type, body, now_ms)
        if after is None:
            return False
        if handle.last_commit is not commit:
            committer.touch(handle)
        row = handle.feed_row or feed_row_of(handle, before)
        commit.entries[handle.bucket].append((row, before.tail, body, (len(body),), False))
        commit.audiences[audience].append((sender, after))
        handle.accepted = after
        handle.unsealed += 1
        handle.used = True
        return True

    def create(self, bucket: str, name: str, command: Create, reply: Reply) -> None:
        if self._refuses(reply):
            return
        if self.buckets.get(bucket) is None:
            reply(BucketMissing(), None)
            return
        existing = self.find(bucket, name)
        source: StreamHandle | None = None
        if existing is not None or command.fork is None:
            state = None if existing is None else existing.accepted
            outcome = decide_create(state, command, self.committer.new_id(), self.now_ms())
        else:
            source = self.find(command.fork.bucket, command.fork.name)
            outcome = self._decide_fork(source, command)
        if isinstance(outcome, list):
            refused = self._beyond_quota(bucket, len(command.body), streams=1)
            if refused is not None:
                reply(refused, None)
                return
            handle = self.handles.find_or_make(stream_key(bucket, name))
            if source is not None:
                self._changes.accept(source, ForkTaken())
            for record in outcome:
                self._changes.accept(handle, record)
            self.committer.answer(handle, reply, outcome, handle.accepted)
        elif existing is not None:
            self.committer.answer(existing, reply, outcome, existing.accepted)
        else:
            reply(outcome, None)

    def begin_upload(self, bucket: str, name: str, offset: int) -> Upload | Rejected:
        """Room for a snapshot of the stream as it is there now."""
        rejected = self.judge_snapshot(bucket, name, offset)
        if rejected is not None:
            return rejected
        handle = self.find(bucket, name)
        assert handle is not None, "judge_snapshot refuses a missing stream"
        assert handle.accepted is not None, "and one that is gone"
        return Upload(self.store, self.committer.new_id(), handle.accepted.id)

    def publish(
        self, bucket: str, name: str, offset: int, content_type: str, upload: Upload, reply: Reply
    ) -> None:
        """Make an uploaded snapshot the stream's latest, and everything before it obsolete."""
        if self._refuses(reply):
            upload.abandon()
            return
        rejected = self.judge_snapshot(bucket, name, offset)
        if rejected is not None:
            upload.abandon()
            reply(rejected, None)
            return
        handle = self.find(bucket, name)
        assert handle is not None, "judge_snapshot refuses a missing stream"
        before = handle.accepted
        assert before is not None, "and one that is gone"
        if before.id != upload.stream_id:  # deleted and made anew while the snapshot came in
            upload.abandon()
            reply(StreamMissing(), None)
            return
        published = SnapshotPublished(Snapshot(offset, content_type, upload.size, upload.blob, before.id))
        growth = kept_bytes(apply(before, published)) - kept_bytes(before)
        rejected = self._beyond_quota(bucket, growth)
        if rejected is not None:
            upload.abandon()
            reply(rejected, None)
            return
        upload.finish()
        if upload.failure is not None:
            self.committer.stumbled(upload.failure)
            upload.abandon()
            reply(NotStored(), None)
            return
        self._changes.accept(handle, published)
        self.committer.answer(handle, reply, published, handle.accepted)

    def judge_snapshot(self, bucket: str, name: str, offset: int) -> Rejected | None:
        """Could a snapshot be published there now?"""
        handle = self.find(bucket, name)
        if handle is None or handle.accepted is None:
            return self._missing(bucket)
        state = _with_visible_tail(handle.accepted, handle.visible)
        rejected = judge_offset(state, offset)
        if rejected is None:
            anchor = anchor_at(self.store, state, offset)
            if anchor is None or not anchor.aligned:
                rejected = NOT_A_BOUNDARY
        return rejected

    def create_bucket(self, bucket: str, reply: Callable[[Rejected | None], None]) -> None:
        self._answer_bucket(self.buckets.create(bucket, self.now_ms()), reply)

    def delete_bucket(self, bucket: str, reply: Callable[[Rejected | None], None]) -> None:
        rejected = self.buckets.delete(bucket)
        if rejected is None:
            commit = self.committer.enlist()
            # Whatever waits to be written here was removed since; a feed that begins anew must not hold it.
            commit.entries.pop(bucket, None)
            commit.extras.append(lambda batch: batch.clear_feed(bucket))
        self._answer_bucket(rejected, reply)

    def delete(self, bucket: str, name: str, reply: Reply) -> None:
        if self._refuses(reply):
            return
        handle = self.find(bucket, name)
        if handle is None:
            reply(self._missing(bucket), None)
            return
        outcome = decide_delete(handle.accepted)
        if isinstance(outcome, Removed | SoftDeleted):
            self._changes.remove(handle, outcome)
        self.committer.answer(handle, reply, outcome, None)

    def expire_if_due(self, key: bytes) -> None:
        """For the sweeper: the stored lease of this stream has run out. Has the stream?"""
        handle = self.handles.find(key)
        if handle is None or handle.accepted is None:
            return
        if self.lifetimes.is_over(handle):
            self._changes.expire(handle)
        else:
            # It was touched since, or someone is reading: store a lease that says so.
            self.lifetimes.extend_lease(handle)

    async def close(self) -> None:
        await self.committer.close()
        self.store.close()

    # Steps

    def _refuses(self, reply: Reply) -> bool:
        """After a failed sync the store may show what the disk does not hold: no decision can rest on it."""
        if self.committer.failure is None:
            return False
        reply(NotStored(until_restart=True), None)
        return True

    def _beyond_quota(self, bucket: str, size: int, streams: int = 0) -> Rejected | None:
        # The proxy asks before it forwards a request: an answer that has begun is stored to its end.
        if self.quotas is None or bucket == PROXY_BUCKET:
            return None
        return self.quotas.refuse(bucket, size, streams)

    def _missing(self, bucket: str) -> StreamMissing | BucketMissing:
        return StreamMissing() if self.buckets.get(bucket) is not None else BucketMissing()

    def _decide_fork(self, source: StreamHandle | None, command: Create) -> Any:
        fork = command.fork
        assert fork is not None, "asked for a fork"
        state = None if source is None else source.accepted
        anchor = None
        if source is not None and state is not None:
            state = _with_visible_tail(state, source.visible)
            anchor = anchor_at(self.store, state, state.tail if fork.offset is None else fork.offset)
        return decide_fork(state, anchor, command, self.committer.new_id(), self.now_ms())

    def _answer_bucket(self, rejected: Rejected | None, reply: Callable[[Rejected | None], None]) -> None:
        if rejected is not None:
            reply(rejected)
            return
        replies = self.committer.enlist().replies
        replies.append((lambda outcome, _: reply(outcome), None, None))

    def _forget_changes(self) -> None:
        self.buckets.forget_changes()
        self.graves.forget_changes()

    def _producer(self, handle: StreamHandle, producer_id: str) -> ProducerState | None:
        producers = handle.producers
        if producer_id not in producers:
            if len(producers) >= KNOWN_PRODUCERS and not handle.pending:
                producers.clear()
            state = handle.accepted
            producers[producer_id] = None if state is None else self.store.producer(state.id, producer_id)
        return producers[producer_id]

    def _became_visible(self, handles: Iterable[StreamHandle]) -> None:
        for handle in handles:
            if handle.shared:
                handle.shared.clear()
            if handle.watchers:
                handle.tell_watchers()
            if handle.visible is None:
                self.handles.forget(handle)
        self.on_growth(handles)


def _with_visible_tail(accepted: StreamState, visible: StreamState | None) -> StreamState:
    """What forks and snapshots may rest on: no data that a crash could still take back."""
    tail = visible.tail if visible is not None and visible.id == accepted.id else accepted.base
    return msgspec.structs.replace(accepted, tail=tail)
