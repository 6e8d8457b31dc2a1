"""What time it is. A value that is passed in, so that tests move it by hand.

Times that are only told (when something was written) come from the machine's wall clock. Times that decide
whether a stream still lives do not trust it: someone sets it, a virtual machine wakes up, a time server
corrects a year. So there are two more readings, both in milliseconds since the epoch:

- `idle_ms` is for idle windows (TTL). It is the wall clock as it was when the process started, carried on by
  a clock that nobody can set. A wall clock that leaps forward expires nothing early, one that leaps back
  makes nothing live longer.
- `wall_ms` is for absolute times (Stream-Expires-At), which by their nature follow the wall clock; but a leap
  of it is believed only when it has lasted for a minute. A clock that is wrong for a moment deletes nothing.

Stored deadlines of idle windows are readings of `idle_ms`. So that a restart reads them right after a leap,
the difference is kept in a file until the machine itself starts again; then the wall clock is all there is.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import msgspec

log = logging.getLogger("perennial.clock")

Clock = Callable[[], int]
"""Microseconds since the epoch."""

MS: Final = 1_000_000  # nanoseconds in one
LEAP_MS: Final = 2_000
BELIEVED_AFTER_MS: Final = 60_000
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def system_clock() -> int:
    return time.time_ns() // 1000


class Deadlines(Protocol):
    """What deadlines are compared with."""

    def idle_ms(self) -> int: ...

    def wall_ms(self) -> int: ...


class OneClock:
    """Both readings from one clock: for tests, which do not leap by accident."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def idle_ms(self) -> int:
        return self._clock() // 1000

    wall_ms = idle_ms


class _Kept(msgspec.Struct):
    boot: str
    anchor_ms: int


class SteadyClock:
    """`Deadlines` of this machine. `keep_in` is where a leap is remembered; None: nowhere."""

    def __init__(
        self,
        keep_in: Path | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
        steady_ns: Callable[[], int] | None = None,
    ) -> None:
        self._wall_ns = wall_ns
        self._steady_ns = steady_ns or _since_boot_ns
        self._keep_in = keep_in
        anchor = self._offset_ms()
        kept = self._recall()
        # What turns a steady reading into idle_ms; and into wall_ms, as far as we believe it.
        self._idle_anchor = anchor if kept is None else kept
        self._wall_anchor = anchor
        # A leap that is being watched: the offset it led to, and since when it has been that.
        self._leap: tuple[int, int] | None = None

    def idle_ms(self) -> int:
        return self._steady_ns() // MS + self._idle_anchor

    def wall_ms(self) -> int:
        offset, steady = self._offset_ms(), self._steady_ns() // MS
        if abs(offset - self._wall_anchor) <= LEAP_MS:
            self._wall_anchor, self._leap = offset, None
        elif self._leap is None or abs(offset - self._leap[0]) > LEAP_MS:
            self._leap = (offset, steady)
            seconds = (offset - self._wall_anchor) / 1000
            log.warning("the wall clock has leapt by %+.0f seconds; idle windows do not follow", seconds)
            self._remember()
        elif steady - self._leap[1] >= BELIEVED_AFTER_MS:
            self._wall_anchor, self._leap = offset, None
        return steady + self._wall_anchor

    def _offset_ms(self) -> int:
        return (self._wall_ns() - self._steady_ns()) // MS

    def _remember(self) -> None:
        if self._keep_in is not None and (boot := _boot_id()):
            with suppress(OSError):
                self._keep_in.write_bytes(msgspec.json.encode(_Kept(boot, self._idle_anchor)))

    def _recall(self) -> int | None:
        if self._keep_in is None:
            return None
        try:
            kept = msgspec.json.decode(self._keep_in.read_bytes(), type=_Kept)
        except (OSError, msgspec.MsgspecError):
            return None
        if kept.boot == _boot_id():
            return kept.anchor_ms
        with suppress(OSError):
            self._keep_in.unlink()
        return None


def _since_boot_ns() -> int:
    # Unlike the monotonic clock it goes on while the machine sleeps; not every system has it.
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
