"""Group commit: records of many streams become durable together.

While one commit is on its way to the disk the next one fills; there is no timer and no batching window.
The batch is written on the event loop's thread, because the store's binding holds the interpreter's lock
while it writes and a second thread would gain nothing; only the sync, which lets the loop run, has a thread.
An answer is given when the commit it rests on is durable, and only then do readers see what it added.
"""

import asyncio
import logging
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, Final, Protocol

from perennial.protocol.rejections import Rejected
from perennial.protocol.state import Appended, Closed, ProducerState, StreamState
from perennial.service.buckets import Buckets
from perennial.service.clock import Clock
from perennial.service.handles import StreamHandle
from perennial.service.measures import CommitMeasures
from perennial.service.rows import Rows
from perennial.store.additions import Additions, Entry, TableRow, table_row
from perennial.store.blocks import encode_appends
from perennial.store.errors import StoreError, StoreFull
from perennial.store.feedlog import encode_commit
from perennial.store.interface import Batch, Store

log = logging.getLogger("perennial.commits")

PROBE_SECONDS: Final = 1.0

Reply = Callable[[Any, StreamState | None], None]
"""Called once with the outcome of a command and the stream's state after it."""


class Audience(Protocol):
    """Many who wait for the same commit and are answered in one call. Who they are is not known here.

    An answer that fails is its own affair: the others still go out, and nothing is raised.
    """

    def stored(self, waiting: Iterable[tuple[Any, StreamState]]) -> None:
        """Each with the stream's state after what it sent."""

    def refused(self, waiting: Iterable[tuple[Any, StreamState]], why: Rejected) -> None: ...


class NotStored(Rejected, frozen=True):
    """The disk did not take it; nothing was changed. Try again later."""

    until_restart: bool = False

    @property
    def message(self) -> str:
        if not self.until_restart:
            return super().message
        return "The disk failed to confirm a write, so this server only reads until it is restarted."


def feed_row_of(handle: StreamHandle, state: StreamState) -> TableRow:
    row = handle.feed_row
    if row is None:
        row = handle.feed_row = table_row(state.id, handle.name, state.content_type)
    return row


def entry_of(handle: StreamHandle, before: StreamState, record: Appended | Closed) -> Entry:
    row = feed_row_of(handle, before)
    if isinstance(record, Appended):
        return row, before.tail, record.payload, record.ends, record.closes
    return row, before.tail, b"", (), True


class Commit:
    """What will become durable together, and who waits for it."""

    __slots__ = (
        "audiences",
        "changed",
        "discards",
        "done",
        "entries",
        "extras",
        "handles",
        "opened_at",
        "opened_ms",
        "positions",
        "producers",
        "replies",
        "size",
        "started_at",
        "states",
    )

    def __init__(self) -> None:
        self.handles: dict[StreamHandle, None] = {}
        # Data and closes by bucket: a feed's positions run through its entries without a hole.
        self.entries: defaultdict[str, list[Entry]] = defaultdict(list)
        self.producers: dict[tuple[int, str], ProducerState] = {}
        # The next feed position of each bucket this commit adds to.
        self.positions: dict[str, int] = {}
        # Streams and blobs whose data may be removed once this commit is durable, and not before.
        self.discards: set[int] = set()
        # Whatever else must become durable together with the rest.
        self.extras: list[Callable[[Batch], None]] = []
        self.replies: list[tuple[Reply, Any, StreamState | None]] = []
        self.audiences: defaultdict[Audience, list[tuple[Any, StreamState]]] = defaultdict(list)
        # The handles' states as written, which become visible when this commit is durable, and the leases
        # the store held before, which are the truth again if it fails.
        self.states: list[tuple[StreamHandle, StreamState | None, int | None]] = []
        self.changed = False
        self.done = False
        # For the measures: bytes of payload, when the first change came in, and when the write began.
        self.size = 0
        self.opened_at = 0.0
        self.started_at = 0.0
        # When the first change came in, by the clock; 0 before that.
        self.opened_ms = 0


class Committer:
    """Owns the open commit, the one in flight, and the counters they draw on."""

    def __init__(
        self,
        store: Store,
        buckets: Buckets,
        clock: Clock,
        became_visible: Callable[[Iterable[StreamHandle]], None],
        feed_grew: Callable[[str, int], None],
        forget_changes: Callable[[], None],
    ) -> None:
        self._store = store
        self._buckets = buckets
        self._clock = clock
        self._became_visible = became_visible
        self._feed_grew = feed_grew
        self._forget_changes = forget_changes
        self._next_id = store.next_id()
        self.open = Commit()
        self._flight: Commit | None = None
        self._scheduled = False
        # Set when a sync failed: what the disk holds is then unknown, and nothing more is accepted.
        self.failure: StoreError | None = None
        # Why the last write failed. It changed nothing, so every commit is a fresh attempt; while none comes,
        # an empty one is made now and then, so that a server nobody writes to knows when it could.
        self.obstacle: Exception | None = None
        self._probe: asyncio.TimerHandle | None = None
        self.measures = CommitMeasures()
        self.rows = Rows()
        self._loop = asyncio.get_running_loop()
        # What the thread calls next: it waits for the disk. None: the end.
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._sync_for_ever, name="perennial-sync", daemon=True)
        self._thread.start()
        self._idle = asyncio.Event()
        self._idle.set()

    def new_id(self) -> int:
        """For a stream or a blob: never given before, also across restarts."""
        number = self._next_id
        self._next_id += 1
        return number

    def enlist(self) -> Commit:
        """The open commit, for a change that belongs to no stream."""
        commit = self.open
        if not commit.changed:
            commit.changed = True
            commit.opened_at = perf_counter()
            commit.opened_ms = self._clock() // 1000
        self.schedule()
        return commit

    def touch(self, handle: StreamHandle) -> Commit:
        """The open commit, which will store this handle's accepted state."""
        commit = self.open
        if handle.last_commit is not commit:
            commit.handles[handle] = None
            handle.last_commit = commit
            if not commit.changed:
                self.enlist()
        return commit

    def answer(self, handle: StreamHandle, reply: Reply, outcome: Any, state: StreamState | None) -> None:
        """Reply when everything accepted for this stream so far is durable: now, or with its commit."""
        commit = handle.last_commit
        if commit is None or commit.done:
            reply(outcome, state)
        else:
            assert isinstance(commit, Commit), "only touch() sets last_commit"
            commit.replies.append((reply, outcome, state))

    def schedule(self) -> None:
        """Commit soon: when the loop has taken in what has already arrived, or when the disk is free."""
        self._idle.clear()
        if self._flight is None and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._start)

    def is_unsettled(self, number: int) -> bool:
        """Is the removal of this stream's or blob's data written, but not durable yet?"""
        return self._flight is not None and number in self._flight.discards

    @property
    def unsettled_seconds(self) -> float:
        """How long the oldest accepted change has been waiting to become durable; 0 when none is."""
        waiting = self._flight or self.open
        return perf_counter() - waiting.opened_at if waiting.changed else 0.0

    @property
    def read_only(self) -> str | None:
        """Why nothing can be stored at present, for whoever runs the server; None when all is well."""
        if self.failure is not None:
            return "read-only until restarted: the disk failed to confirm a write"
        if isinstance(self.obstacle, StoreFull):
            return "read-only: the disk is full; writing goes on by itself when there is room"
        if self.obstacle is not None:
            return "read-only: the last write failed; it is tried again every second"
        return None

    async def settle(self) -> None:
        """Wait until everything accepted is durable (or has failed)."""
        await self._idle.wait()

    async def close(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
        await self.settle()
        self._work.put(None)
        self._thread.join()

    # One commit's life

    def _start(self) -> None:
        self._scheduled = False
        if self._flight is not None:
            return
        commit = self.open
        if not commit.changed:
            self._idle.set()
            return
        self.open = Commit()
        commit.started_at = perf_counter()
        try:
            if self.failure is not None:
                raise self.failure
            self._store.write(self._encode(commit))
        except StoreError as error:
            self.schedule()
            self._fail(commit, error)
            return
        except Exception as error:
            # A mistake of ours. Whoever waits for this commit hears of it, and the next one is not lost too.
            log.exception("a commit could not be written")
            self.schedule()
            self._fail(commit, error)
            return
        self._flight = commit
        try:
            self._work.put(self._store.begin_sync())
        except StoreError as error:
            self._loop.call_soon(self._synced, error)

    def _sync_for_ever(self) -> None:
        """Runs in a thread. Every time it wants the interpreter's lock, the loop's thread has to give it up,
        so all it does is to wait for the disk."""
        while (wait_for_disk := self._work.get()) is not None:
            failure: StoreError | None = None
            try:
                wait_for_disk()
            except StoreError as error:
                failure = error
            try:
                self._loop.call_soon_threadsafe(self._synced, failure)
            except RuntimeError:
                return  # the loop was closed without waiting for us: nobody is left to tell

    def _synced(self, failure: StoreError | None) -> None:
        commit = self._flight
        assert commit is not None, "a sync is only started for a commit in flight"
        self._flight = None
        if failure is None:
            failure = self._end_sync()
        if failure is not None:
            self.failure = failure
            self._fail(commit, failure)
            self._start()
            return
        commit.done = True
        if self.obstacle is not None:
            log.warning("commits succeed again")
            self.obstacle = None
        records = sum(map(len, commit.entries.values()))
        self.measures.committed(records, commit.size, commit.opened_at, commit.started_at, perf_counter())
        # Before the next commit is tried: if that fails, this is where its streams go back to.
        for handle, state, _ in commit.states:
            handle.visible, handle.before_expiry = state, None
            # Handles stay for long, and would keep every request of this commit with its body.
            if handle.last_commit is commit:
                handle.last_commit = None
        # The next commit begins when these answers have left and what came meanwhile is in it: peers work on
        # the answers while it is written, and there are fewer and larger ones.
        self.schedule()
        _answer(commit.replies)
        for audience, waiting in commit.audiences.items():
            audience.stored(waiting)
        self._became_visible(commit.handles)
        for bucket, position in commit.positions.items():
            self._feed_grew(bucket, position)

    def _end_sync(self) -> StoreError | None:
        try:
            self._store.end_sync()
        except StoreError as error:
            return error
        return None

    def _fail(self, commit: Commit, error: Exception) -> None:
        """Nothing of this commit, nor of what was accepted on top of it, has happened."""
        unsure = self.failure is not None
        self._note(error, unsure)
        later = self.open
        self.open = Commit()
        for failed in (commit, later):
            failed.done = True
            for handle in failed.handles:
                handle.last_commit = None
                if handle.before_expiry is not None:
                    handle.visible, handle.before_expiry = handle.before_expiry, None
                handle.accepted = handle.visible
                handle.feed_row = None
                handle.producers.clear()
                # It counted what is not there. At worst, sealing begins a little later.
                handle.unsealed = 0
                self.rows.undo(handle)
                # Written but not synced: the store shows what readers must not see.
                handle.unsure = handle.unsure or unsure
        for handle, _, stored_lease_ms in commit.states:
            handle.stored_lease_ms = stored_lease_ms
        for failed in (commit, later):
            for handle in failed.handles:
                handle.deadline_ms = handle.lease_ms = handle.stored_lease_ms
        self._forget_changes()
        refusal = NotStored(until_restart=unsure)
        for failed in (commit, later):
            _answer([(reply, refusal, state) for reply, _, state in failed.replies])
            for audience, waiting in failed.audiences.items():
                audience.refused(waiting, refusal)

    def stumbled(self, error: StoreError) -> None:
        """Someone else's write failed, so the next commit would too; or so we assume until one succeeds."""
        self._note(error, self.failure is not None)

    def _note(self, error: Exception, unsure: bool) -> None:
        self.measures.failed()
        # Said once: a full disk fails every commit, and the log may be on it.
        if self.obstacle is None or type(error) is not type(self.obstacle):
            log.error("writing failed: %s", error)
        # A traceback would hold the commit that failed; and one more with every attempt, after a failed sync.
        self.obstacle = error.with_traceback(None)
        if not unsure and self._probe is None:
            self._probe = self._loop.call_later(PROBE_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._probe = None
        if self.obstacle is not None and self.failure is None:
            self.enlist()

    def _encode(self, commit: Commit) -> Batch:
        batch = self._store.batch()
        now_us = self._clock()
        # First what goes, then what comes: a bucket may have been deleted and made anew in one commit.
        for extra in commit.extras:
            extra(batch)
        self._encode_entries(commit, batch, now_us)
        for (stream_id, producer_id), producer in commit.producers.items():
            batch.put_producer(stream_id, producer_id, producer)
        commit.states = [(handle, handle.accepted, handle.stored_lease_ms) for handle in commit.handles]
        self.rows.encode(commit.handles, batch)
        self._buckets.write_changes(batch)
        batch.put_next_id(self._next_id)
        return batch

    def _encode_entries(self, commit: Commit, batch: Batch, now_us: int) -> None:
        for bucket, entries in commit.entries.items():
            added = Additions(entries, self._buckets.next_position(bucket))
            batch.put_blocks(encode_appends(added, now_us))
            batch.put_feed(bucket, added.positions[0], encode_commit(added, now_us))
            size = sum(added.sizes)
            self._buckets.advance(bucket, added.next_position, size)
            commit.positions[bucket] = added.next_position
            commit.size += size


def _answer(replies: Iterable[tuple[Reply, Any, StreamState | None]]) -> None:
    for reply, outcome, state in replies:
        try:
            reply(outcome, state)
        except Exception:
            log.exception("an answer failed")  # and the others still go out
