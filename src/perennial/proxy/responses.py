"""One upstream response on its way into a stream: Start, Data…, and exactly one terminal frame.

What arrives is gathered and written when there is enough of it or enough time has passed since the last
write, so the first byte goes through at once and a flood costs few writes. One write is on its way to the
disk at a time; meanwhile a bounded amount is gathered, and then the upstream waits.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from perennial.protocol.frames import encode_abort, encode_complete, encode_data, encode_error, encode_start
from perennial.protocol.rejections import Rejected
from perennial.protocol.state import Appended, StreamState
from perennial.proxy.callers import Place
from perennial.proxy.errors import ResponseBroken, StorageFailed
from perennial.proxy.ledger import Ledger
from perennial.service.commits import NotStored

if TYPE_CHECKING:
    from perennial.proxy.upstream import Upstream

log = logging.getLogger("perennial.proxy")

BATCH_BYTES: Final = 4 * 1024
BATCH_SECONDS: Final = 0.050
# Gathered and not yet handed to the disk; beyond it, no more is read from the upstream.
GATHER_BYTES: Final = 256 * 1024
RETRY_SECONDS: Final = 1.0
LONGEST_RETRY_SECONDS: Final = 30.0


class ResponseWriter:
    """Lives from the upstream's headers to the durable terminal frame."""

    __slots__ = (
        "_batch_timer",
        "_ending",
        "_gathered",
        "_gathered_bytes",
        "_heard_at",
        "_idle_seconds",
        "_idle_timer",
        "_last_words",
        "_ledger",
        "_loop",
        "_lost",
        "_on_done",
        "_place",
        "_retry_seconds",
        "_retry_timer",
        "_room",
        "_storing",
        "_task",
        "_upstream",
        "_written_at",
        "ended",
        "response_id",
        "started",
        "stream_id",
    )

    def __init__(
        self,
        ledger: Ledger,
        upstream: "Upstream",
        place: Place,
        idle_seconds: float,
        on_done: Callable[["ResponseWriter"], None],
    ) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._ledger = ledger
        self._upstream = upstream
        self._place = place
        self._idle_seconds = idle_seconds
        self._on_done = on_done
        self.stream_id = ""
        self.response_id = 0
        # The Start frame is durable; an exception if the disk did not take it.
        self.started: asyncio.Future[None] = loop.create_future()
        # Whether the terminal frame became durable at the first attempt; it is tried until it does.
        self.ended: asyncio.Future[bool] = loop.create_future()

        self._task: asyncio.Task[None] | None = None
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._storing = False
        self._written_at = float("-inf")
        self._batch_timer: asyncio.TimerHandle | None = None
        self._room: asyncio.Future[None] | None = None  # the reading task waits for it

        self._heard_at = loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None

        self._ending = False
        self._lost = False  # the disk refused frames of this response: what follows would leave a gap
        self._last_words = b""
        self._retry_seconds = RETRY_SECONDS
        self._retry_timer: asyncio.TimerHandle | None = None

    # Beginning

    def start(self, stream_id: str, new_stream: bool) -> None:
        """Write the Start frame, with what has arrived of the body; then pipe the rest in the background."""
        self.stream_id = stream_id
        arrived = self._upstream.arrived()

        def frames(response_id: int) -> bytes:
            start = encode_start(response_id, self._upstream.status, self._upstream.headers)
            return start + encode_data(response_id, arrived) if arrived else start

        if arrived:
            self._written_at = self._loop.time()
        self._storing = True
        self.response_id = self._ledger.start(stream_id, new_stream, frames, self._start_stored)

    def _start_stored(self, outcome: Any, state: StreamState | None) -> None:
        self._storing = False
        if isinstance(outcome, Rejected):
            self._lost = True
            self._ledger.settle(self.stream_id)  # its id was never used: the next response gets it
            self.started.set_exception(StorageFailed(outcome.message))
            self.started.exception()  # seen: whoever waited may have gone
            if not self._ending:
                self._ending = True
                self._let_go()
                self._done(False)
            return
        self.started.set_result(None)
        if not self._ending:
            self._heard_at = self._loop.time()
            self._idle_timer = self._loop.call_later(self._idle_seconds, self._check_idle)
            self._task = self._loop.create_task(self._pipe())

    # The middle

    async def _pipe(self) -> None:
        try:
            while True:
                if self._gathered_bytes >= GATHER_BYTES:
                    self._room = self._loop.create_future()
                    await self._room
                    self._room = None
                    self._heard_at = self._loop.time()  # the silence was ours
                piece = await self._upstream.read()
                if not piece:
                    break
                self._heard_at = self._loop.time()
                self._gathered.append(piece)
                self._gathered_bytes += len(piece)
                self._write_if_due()
        except ResponseBroken as broken:
            self.fail(broken.failure.code, broken.failure.message)
        except Exception as error:
            # Only its kind: an exception's text may quote what must not reach a log.
            log.error("piping a response failed: %s", type(error).__name__)
            self.fail("UPSTREAM_ERROR", "the proxy failed while reading the upstream's response")
        else:
            self._end(encode_complete(self.response_id))

    def _write_if_due(self) -> None:
        if self._storing or self._ending or not self._gathered:
            return
        if self._gathered_bytes < BATCH_BYTES:
            wait = self._written_at + BATCH_SECONDS - self._loop.time()
            if wait > 0:
                if self._batch_timer is None:
                    self._batch_timer = self._loop.call_later(wait, self._batch_due)
                return
        self._written_at = self._loop.time()
        self._storing = True
        self._ledger.write(self.stream_id, encode_data(self.response_id, self._take()), self._stored)

    def _batch_due(self) -> None:
        self._batch_timer = None
        self._write_if_due()

    def _take(self) -> bytes:
        data = self._gathered[0] if len(self._gathered) == 1 else b"".join(self._gathered)
        self._gathered = []
        self._gathered_bytes = 0
        if self._batch_timer is not None:
            self._batch_timer.cancel()
            self._batch_timer = None
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        return data

    def _stored(self, outcome: Any, state: StreamState | None) -> None:
        self._storing = False
        if isinstance(outcome, Appended):
            self._write_if_due()
        elif isinstance(outcome, NotStored):
            self._lost = True
            self.fail("STORAGE_ERROR", "the store did not take the response; what came before is kept")
        else:
            self._abandon()

    def _check_idle(self) -> None:
        paused = self._room is not None
        silent = 0.0 if paused else self._loop.time() - self._heard_at
        if silent >= self._idle_seconds:
            message = f"Upstream did not send data within {self._idle_seconds:g} seconds"
            self.fail("UPSTREAM_TIMEOUT", message)
        else:
            self._idle_timer = self._loop.call_later(self._idle_seconds - silent, self._check_idle)

    # The end, whichever comes first. Each writes its frames into the open commit before it returns.

    def abort(self) -> None:
        self._end(encode_abort(self.response_id))

    def fail(self, code: str, message: str) -> None:
        self._end(encode_error(self.response_id, code, message))

    def drop(self) -> None:
        """The stream is being deleted: there is nothing left to write to."""
        if not self._ending:
            self._abandon()

    def give_up(self) -> None:
        """The server stops: what the disk still refuses is left to the next start."""
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._done(False)

    def _end(self, terminal: bytes) -> None:
        if self._ending:
            return
        self._ending = True
        rest = self._take() if self._gathered else b""
        if not self._lost:
            rest += self._upstream.arrived()
            self._last_words = encode_data(self.response_id, rest) + terminal if rest else terminal
        else:
            self._last_words = terminal
        self._let_go()
        self._say_last_words()

    def _say_last_words(self) -> None:
        self._retry_timer = None
        self._ledger.finish(self.stream_id, self.response_id, self._last_words, self._finished)

    def _finished(self, outcome: Any, state: StreamState | None) -> None:
        if isinstance(outcome, Appended):
            self._done(True)
        elif not isinstance(outcome, NotStored):
            self._abandon()
        elif self.started.done() and self.started.exception() is not None:
            self._done(False)  # not even the Start frame was taken, so there is nothing to end
        else:
            if self._lost:
                message = "the store did not take the response; what came before is kept"
                self._last_words = encode_error(self.response_id, "STORAGE_ERROR", message)
            if not self.ended.done():
                self.ended.set_result(False)
            self._retry_timer = self._loop.call_later(self._retry_seconds, self._say_last_words)
            self._retry_seconds = min(2 * self._retry_seconds, LONGEST_RETRY_SECONDS)

    def _abandon(self) -> None:
        """The stream has gone, or takes no more: no frame can be written."""
        self._ending = True
        self._ledger.forget(self.stream_id, self.response_id)
        self._let_go()
        self._done(True)

    def _let_go(self) -> None:
        for timer in (self._idle_timer, self._batch_timer):
            if timer is not None:
                timer.cancel()
        self._upstream.close()
        self._place.leave()
        # An upstream's end is noticed inside the task, which then ends by itself.
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    def _done(self, stored: bool) -> None:
        if not self.ended.done():
            self.ended.set_result(stored)
        self._on_done(self)
