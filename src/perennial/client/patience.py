"""How long to keep trying a server that cannot be reached, and how long to pause between attempts. No I/O."""

import random

from perennial.client.errors import Disconnected
from perennial.client.reading import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS


class Patience:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._failures = 0

    def restored(self) -> None:
        """An answer came: the server is well."""
        self._since = None
        self._failures = 0

    def lost(self, now: float, next_offset: int | None = None) -> float:
        """Seconds to wait before the next attempt; raises `Disconnected` when it is enough."""
        if self._since is None:
            self._since = now
        elif now - self._since > self._seconds:
            reason = f"the server could not be reached for {self._seconds:g} seconds"
            raise Disconnected(reason, next_offset)
        pause: float = min(FIRST_PAUSE_SECONDS * 2 ** min(self._failures, 10), LONGEST_PAUSE_SECONDS)
        self._failures += 1
        # Readers that lost the same server do not all come back in the same instant.
        return pause * random.uniform(0.5, 1.0)
