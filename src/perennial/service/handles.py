"""A stream as the service holds it in memory, and the bounded set of such handles.

A handle has two states. `accepted` is what the next command is judged against; `visible` is what has
become durable, all that readers ever see. States are values, so undoing a failed commit is one assignment.
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from perennial.protocol.state import ProducerState, StreamState
from perennial.store.additions import TableRow
from perennial.store.interface import Store
from perennial.store.keys import parse_stream_key

log = logging.getLogger("perennial.handles")

IDLE_HANDLES: Final = 20_000


class Watcher(Protocol):
    """A live reader: told when what it can see has changed."""

    def changed(self) -> None: ...

    def broken(self) -> None:
        """`changed` has raised: end the read so that the reader notices."""


class Flight(Protocol):
    """A commit on its way to the disk, as far as a handle must know it."""

    done: bool


class StreamHandle:
    """One name. It outlives incarnations: a stream deleted and created again keeps its handle."""

    __slots__ = (
        "accepted",
        "before_expiry",
        "bucket",
        "deadline_ms",
        "feed_row",
        "grown_in",
        "key",
        "lagging",
        "last_commit",
        "lease_ms",
        "name",
        "producers",
        "row_due",
        "row_lags",
        "sealed_until",
        "sealing",
        "shared",
        "stored_lease_ms",
        "unsealed",
        "unsure",
        "used",
        "visible",
        "watchers",
    )

    def __init__(
        self, key: bytes, state: StreamState | None, deadline_ms: int | None, row_lags: bool = False
    ) -> None:
        self.key = key
        self.bucket, self.name = parse_stream_key(key)
        self.accepted = state
        self.visible = state
        # What was visible before the stream expired, until its removal is durable.
        self.before_expiry: StreamState | None = None
        # When the stream expires unless touched; the somewhat later time to be stored, so that not every
        # touch is a write; and what the store holds now.
        self.deadline_ms = deadline_ms
        self.lease_ms = deadline_ms
        self.stored_lease_ms = deadline_ms
        # For `rows`: the period when it last grew; whether more than the tail has moved since the row was
        # written; whether that row lags, and waits to be made exact: until then no second handle may come.
        self.grown_in = -2
        self.row_due = False
        self.row_lags = row_lags
        self.lagging = False
        # What is known of producers; None stands for "the store has nothing either".
        self.producers: dict[str, ProducerState | None] = {}
        # Live readers. An idle window does not run out while there are any.
        self.watchers: set[Watcher] = set()
        # The last one with a change of this stream, until it is done.
        self.last_commit: Flight | None = None
        # How the feed refers to this incarnation; made on its first append.
        self.feed_row: TableRow | None = None
        # How far small records have been sealed into blocks (None: not asked yet), and how many follow.
        self.sealed_until: int | None = None
        self.unsealed = 0
        # Waiting for the sealer or in its hands: a second handle of the same stream must not come in between.
        self.sealing = False
        # Encoded chunks that readers at the same place share; emptied when the visible tail moves.
        self.shared: dict[object, object] = {}
        # The disk never confirmed a change that the store would show: only this handle knows better.
        self.unsure = False
        self.used = True

    def tell_watchers(self) -> None:
        """What can be seen has changed."""
        for watcher in tuple(self.watchers):
            try:
                watcher.changed()
            except Exception:
                # The store has lost something, most likely, and the others still have to hear of the rest.
                log.exception("a live read of %s/%s failed", self.bucket, self.name)
                watcher.broken()

    @property
    def pending(self) -> bool:
        """Is something of this stream accepted but not durable yet?"""
        return self.last_commit is not None and not self.last_commit.done

    @property
    def gone(self) -> bool:
        """Nothing is accepted under this name any more."""
        return self.accepted is None

    @property
    def evictable(self) -> bool:
        return not (self.pending or self.watchers or self.sealing or self.lagging or self.unsure)


class Handles:
    """Handles in memory, loaded on first touch; idle ones leave when there are too many."""

    def __init__(self, store: Store, limit: int = IDLE_HANDLES) -> None:
        self._store = store
        self._limit = limit
        self._by_key: dict[bytes, StreamHandle] = {}
        # The handle if it is in memory.
        self.peek: Callable[[bytes], StreamHandle | None] = self._by_key.get

    def __len__(self) -> int:
        return len(self._by_key)

    def find(self, key: bytes) -> StreamHandle | None:
        """The handle of a stream that exists or is coming into being."""
        handle = self._by_key.get(key)
        if handle is not None:
            handle.used = True
            return handle
        row = self._store.stream(key)
        return None if row is None else self._add(StreamHandle(key, row.state, row.deadline_ms, row.lags))

    def find_or_make(self, key: bytes) -> StreamHandle:
        return self.find(key) or self._add(StreamHandle(key, None, None))

    def forget(self, handle: StreamHandle) -> None:
        """Drop a handle whose stream is gone, unless someone still holds on to it."""
        if handle.evictable and self._by_key.get(handle.key) is handle:
            del self._by_key[handle.key]

    def each(self, visit: Callable[[StreamHandle], None]) -> None:
        for handle in list(self._by_key.values()):
            visit(handle)

    def _add(self, handle: StreamHandle) -> StreamHandle:
        self._by_key[handle.key] = handle
        if len(self._by_key) > self._limit:
            self._make_room()
        return handle

    def _make_room(self) -> None:
        # A second chance for the oldest few: used since the last look goes to the back of the queue.
        for key in [key for key, _ in zip(self._by_key, range(8), strict=False)]:
            handle = self._by_key.pop(key)
            if handle.used or not handle.evictable:
                handle.used = False
                self._by_key[key] = handle
