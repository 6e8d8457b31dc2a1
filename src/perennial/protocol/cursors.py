"""Cursors: a live response carries a number that moves with time, so caches never serve one for ever.

The cursor is the number of a 20-second interval since a fixed epoch (base protocol, 8.1).
"""

import re
from typing import Final

INTERVAL_SECONDS: Final = 20
EPOCH_MS: Final = 1_728_432_000_000  # 2024-10-09T00:00:00Z
MAX_JITTER_SECONDS: Final = 3600

_CURSOR = re.compile(r"[0-9]{1,15}")


def parse_cursor(value: str | None) -> int | None:
    """The client's cursor; one we cannot have minted is ignored."""
    return int(value) if value is not None and _CURSOR.fullmatch(value) else None


def next_cursor(now_ms: int, client: int | None, jitter_seconds: int) -> int:
    """Strictly beyond the client's cursor. `jitter_seconds` is random in 1..3600, drawn by the caller."""
    current = (now_ms - EPOCH_MS) // (INTERVAL_SECONDS * 1000)
    if client is None or client < current:
        return current
    return client + max(1, -(-jitter_seconds // INTERVAL_SECONDS))
