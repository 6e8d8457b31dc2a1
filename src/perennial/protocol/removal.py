"""Deletion: at once when nothing depends on the stream, softly while forks still read from it."""

from perennial.protocol.rejections import StreamGone, StreamMissing
from perennial.protocol.state import Record, Removed, SoftDeleted, StreamState


def decide_delete(state: StreamState | None) -> SoftDeleted | Removed | StreamMissing | StreamGone:
    if state is None:
        return StreamMissing()
    if state.soft_deleted:
        return StreamGone()
    return expire(state)


def expire(state: StreamState) -> SoftDeleted | Removed:
    """An expired stream goes the way of a deleted one."""
    return SoftDeleted() if state.forks else Removed()


def after_release(state: StreamState) -> Record | None:
    """What follows when a fork of `state` has gone: a deleted stream leaves with its last fork."""
    return Removed() if state.soft_deleted and state.forks == 0 else None
