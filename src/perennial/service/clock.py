"""What time it is. A value that is passed in, so that tests move it by hand."""

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Microseconds since the epoch."""


def system_clock() -> int:
    return time.time_ns() // 1000
