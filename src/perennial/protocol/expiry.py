"""Lifetimes: a TTL is an idle window that reads and writes restart; an absolute expiry never moves.

The service keeps each stream's `touched_ms` (the last access that counts); these functions judge it.
"""

from perennial.protocol.state import StreamState


def deadline_ms(state: StreamState, touched_ms: int) -> int | None:
    """When the stream expires if nobody touches it again; None: never."""
    if state.ttl_seconds is not None:
        return touched_ms + state.ttl_seconds * 1000
    return state.expires_at_ms


def slack_ms(ttl_seconds: int) -> int:
    """How much longer than needed a stored deadline is, so that not every access must be stored.

    After a crash a stream may live this much longer than its window, and never shorter.
    """
    return min(ttl_seconds * 100, 60_000)
