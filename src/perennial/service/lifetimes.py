"""Idle windows and fixed deadlines: how long a stream has left, and what the store is told of it.

A window restarts with every access. Writing that down each time would make every read a write, so the store
holds a *lease*: a deadline with some slack, renewed only when the true one passes it. The sweeper goes by
leases and asks here whether the stream's time is really over.
"""

from perennial.protocol.expiry import deadline_ms, slack_ms
from perennial.protocol.state import StreamState
from perennial.service.clock import Deadlines
from perennial.service.commits import Committer
from perennial.service.handles import StreamHandle


class Lifetimes:
    def __init__(self, deadlines: Deadlines, committer: Committer) -> None:
        self._deadlines = deadlines
        self._committer = committer

    def now_for(self, state: StreamState) -> int:
        """The time that this stream's deadline is compared with, in milliseconds."""
        return self._deadlines.wall_ms() if state.ttl_seconds is None else self._deadlines.idle_ms()

    def begin(self, handle: StreamHandle, state: StreamState) -> None:
        """The stream has just been created."""
        handle.deadline_ms = handle.lease_ms = deadline_ms(state, self._deadlines.idle_ms())
        self.restart(handle, state)

    def restart(self, handle: StreamHandle, state: StreamState) -> None:
        """An access: the idle window, if the stream has one, begins anew."""
        if state.ttl_seconds is None:
            return
        handle.deadline_ms = self._deadlines.idle_ms() + state.ttl_seconds * 1000
        if handle.lease_ms is None or handle.deadline_ms > handle.lease_ms:
            self.extend_lease(handle)

    def extend_lease(self, handle: StreamHandle) -> None:
        state = handle.accepted
        if state is None or state.ttl_seconds is None or state.soft_deleted:
            return
        start = max(self._deadlines.idle_ms() + state.ttl_seconds * 1000, handle.deadline_ms or 0)
        handle.lease_ms = start + slack_ms(state.ttl_seconds)
        self._committer.touch(handle)

    def is_over(self, handle: StreamHandle) -> bool:
        """Has the stream run out of time, and has nobody noticed yet?"""
        state, deadline = handle.accepted, handle.deadline_ms
        if state is None or deadline is None or state.soft_deleted or self.now_for(state) < deadline:
            return False
        # A stream with a live reader is not idle.
        return not (handle.watchers and state.ttl_seconds is not None)
