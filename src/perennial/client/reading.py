"""One response out of the frames of its stream, and where to go on reading. No I/O.

Bytes are counted as they come, so after a lost connection reading goes on with the very next byte, in the
middle of a frame if need be: nothing is read twice and nothing is missed.
"""

import random
from collections.abc import Mapping
from typing import Final

from perennial.client.errors import (
    Disconnected,
    PerennialClientError,
    ResponseAborted,
    ResponseFailed,
    StreamEnded,
    UrlExpired,
    refusal,
)
from perennial.protocol.frames import (
    TERMINAL,
    Failure,
    FrameError,
    FrameParser,
    FrameType,
    Start,
    parse_failure,
    parse_start,
)
from perennial.protocol.offsets import format_offset

FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 5.0
RETRIED: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class ResponseReader:
    """Follows one response through its stream. `offset`: from where another reader would go on."""

    def __init__(self, response_id: int, offset: int = 0) -> None:
        self._parser = FrameParser(offset)
        # Begun behind the Start frame, we never see it, and that is fine.
        self._start_expected = offset == 0
        self.response_id = response_id
        self.offset = offset
        self.start: Start | None = None
        self.failure: Failure | None = None
        self.aborted = False
        self.ended = False

    @property
    def position(self) -> int:
        return self._parser.position

    def feed(self, data: bytes) -> list[tuple[bytes, int]]:
        """The pieces of the response's body in these bytes, each with the offset behind it."""
        pieces: list[tuple[bytes, int]] = []
        for frame in self._parser.feed(data):
            if frame.response_id != self.response_id:
                continue
            if self.ended:
                raise FrameError("a frame after the response's terminal frame", frame.end)
            if frame.type is FrameType.START:
                if self.start is not None:
                    raise FrameError("a second Start frame of one response", frame.end)
                self.start = parse_start(frame)
            elif self.start is None and self._start_expected:
                raise FrameError("a frame before the response's Start frame", frame.end)
            elif frame.type is FrameType.DATA:
                pieces.append((frame.payload, frame.end))
            else:
                self.ended = frame.type in TERMINAL
                self.aborted = frame.type is FrameType.ABORT
                if frame.type is FrameType.ERROR:
                    self.failure = parse_failure(frame)
        return pieces

    def ending(self) -> PerennialClientError | None:
        """Why the body is not whole; None if it is."""
        if self.failure is not None:
            return ResponseFailed(self.failure.code, self.failure.message)
        return ResponseAborted("the response was aborted") if self.aborted else None


class Reading:
    """Decides what to ask for next, and when to stop asking."""

    def __init__(self, url: str, reader: ResponseReader, patience_seconds: float) -> None:
        self.url = url
        self.reader = reader
        self._patience = patience_seconds
        self._cursor: str | None = None
        self._failures = 0
        self._failing_since: float | None = None
        self._broke_at = reader.position
        self._at_end = False

    def next_url(self) -> str:
        """A long-poll: answered at once if there is more, otherwise when there is."""
        cursor = "" if self._cursor is None else f"&cursor={self._cursor}"
        return f"{self.url}&offset={format_offset(self.reader.position)}&live=long-poll{cursor}"

    def accepts(self, status: int, headers: Mapping[str, str]) -> bool:
        """True: read the body and feed it. False: nothing new came. Otherwise see `refused`."""
        if status not in (200, 204):
            return False
        self._cursor = headers.get("stream-cursor")
        closed = headers.get("stream-closed", "").lower() == "true"
        self._at_end = closed and "stream-up-to-date" in headers
        return status == 200

    def took(self) -> None:
        """An answer was read to its end: the server is well."""
        self._failures = 0
        self._failing_since = None
        if self._at_end and not self.reader.ended:
            raise StreamEnded("the stream was closed before the response was complete", self.reader.offset)

    def refused(
        self, status: int, headers: Mapping[str, str], body: bytes, now: float, can_renew: bool
    ) -> float | None:
        """Seconds to wait before trying again, or None: renew the URL first. Raises if there is no use."""
        problem = refusal(status, headers, body)
        problem.next_offset = self.reader.offset
        if isinstance(problem, UrlExpired) and problem.renewable and can_renew:
            return None
        if status in (404, 410):
            raise StreamEnded("the stream is gone: it was deleted or has expired", self.reader.offset)
        if status not in RETRIED:
            raise problem
        return self.lost(now)

    def lost(self, now: float) -> float:
        """The connection broke. Seconds to wait before the next attempt; raises `Disconnected`."""
        if self._failing_since is None or self.reader.position > self._broke_at:
            # Something came before it broke: that is a bad connection, not an absent server.
            self._failures = 0
            self._failing_since = now
            self._broke_at = self.reader.position
        elif now - self._failing_since > self._patience:
            raise Disconnected(
                f"the server could not be reached for {self._patience:g} seconds", self.reader.offset
            )
        pause: float = min(FIRST_PAUSE_SECONDS * 2 ** min(self._failures, 10), LONGEST_PAUSE_SECONDS)
        self._failures += 1
        # Readers that lost the same server do not all come back in the same instant.
        return pause * random.uniform(0.5, 1.0)
