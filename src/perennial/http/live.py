"""Live reads: long-poll and SSE. Readers at the same place of a stream share one read and one encoding."""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from perennial.http.crowding import WaitingRoom, is_event_source
from perennial.http.errors import fail, reject
from perennial.http.exchange import FAILED, Exchange, Headers, SharedChunk
from perennial.protocol import headers as h
from perennial.protocol.conditional import NO_STORE, make_etag
from perennial.protocol.cursors import next_cursor
from perennial.protocol.media import is_json, is_text
from perennial.protocol.messages import join_json
from perennial.protocol.offsets import format_offset
from perennial.protocol.rejections import Rejected, StreamMissing
from perennial.protocol.sse import encode_base64, encode_control, encode_text
from perennial.protocol.state import StreamState
from perennial.service.handles import StreamHandle
from perennial.service.reading import Chunk
from perennial.service.streams import StreamService

# Larger batches only delay the first byte; a slow reader gets the next one when it has taken this one.
SSE_BATCH_BYTES: Final = 256 * 1024
# Past this, an encoding is worth more to the memory than to the next reader.
SHARED_BYTES: Final = 256 * 1024
SHARED_CHUNKS: Final = 4
HEARTBEAT_SECONDS: Final = 15.0
HEARTBEAT: Final = SharedChunk(b":\n\n")
NO_ROOM: Final = "as many live reads as this server takes are open"


class LiveReads:
    """All live readers, so that a stopping server can send them home."""

    def __init__(
        self,
        service: StreamService,
        room: WaitingRoom,
        long_poll_seconds: float,
        sse_max_age_seconds: float,
        max_readers: int = 20_000,
    ) -> None:
        self.service = service
        self.long_poll_seconds = long_poll_seconds
        self.sse_max_age_seconds = sse_max_age_seconds
        self.loop = asyncio.get_running_loop()
        self.readers: set[LongPoll | SseReader] = set()
        self._on_drain: set[Callable[[], None]] = set()
        self._room = room
        self.draining = False
        self._max_readers = max_readers
        self.turned_away = 0

    def on_drain(self, finish: Callable[[], None]) -> Callable[[], None]:
        """For other waits: `finish` is called when the server stops, until the returned function is."""
        self._on_drain.add(finish)
        return lambda: self._on_drain.discard(finish)

    def admit(self, exchange: Exchange, wants_events: bool = False) -> bool:
        """Is there room for one more to wait? If not, the request has been answered."""
        if len(self.readers) + len(self._on_drain) < self._max_readers:
            return True
        self.turned_away += 1
        if wants_events and is_event_source(exchange.request):
            self._room.take(exchange, NO_ROOM)
        else:
            retry = [(b"retry-after", b"%d" % random.randint(1, 5))]  # not all at once
            fail(exchange, 503, "TOO_MANY_READERS", NO_ROOM, retry)
        return False

    def count(self) -> dict[str, int]:
        """How many readers wait or follow, by mode."""
        following = sum(isinstance(reader, SseReader) for reader in self.readers)
        return {"sse": following, "long-poll": len(self.readers) - following, "feed": len(self._on_drain)}

    def drain(self) -> None:
        """End every live read cleanly, on a boundary from which its client can resume."""
        self.draining = True
        for reader in tuple(self.readers):
            reader.finish()
        for finish in tuple(self._on_drain):
            finish()


class LongPoll:
    """Waits for one answer: data, closure, or the timeout."""

    __slots__ = (
        "_caching",
        "_cursor",
        "_exchange",
        "_handle",
        "_limit",
        "_live",
        "_start",
        "_stream_id",
        "_timer",
    )

    def __init__(
        self,
        live: LiveReads,
        exchange: Exchange,
        handle: StreamHandle,
        start: int,
        cursor: int,
        limit: int,
        caching: bytes,
    ) -> None:
        self._live = live
        self._exchange = exchange
        self._handle = handle
        self._start = start
        self._cursor = cursor
        self._limit = limit
        self._caching = caching
        self._stream_id = -1 if handle.visible is None else handle.visible.id
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._answer_if_ready():
            return
        if self._live.draining:
            self.finish()
            return
        if not self._live.admit(self._exchange):
            return
        self._live.readers.add(self)
        self._live.service.watch(self._handle, self)
        self._exchange.on_closed = self._leave
        self._timer = self._live.loop.call_later(self._live.long_poll_seconds, self.finish)

    def changed(self) -> None:
        # Re-read everything: between the change and now the stream may have moved on, closed or gone.
        self._answer_if_ready()

    def broken(self) -> None:
        self._leave()
        fail(self._exchange, 500, "INTERNAL_ERROR", FAILED)

    def finish(self) -> None:
        """Nothing came: say where the tail is, and that the reader has everything before it."""
        self._leave()
        state = self._visible()
        if state is None:
            reject(self._exchange, StreamMissing())
            return
        headers: Headers = [
            (h.STREAM_NEXT_OFFSET, b"%016d" % state.tail),
            (h.STREAM_UP_TO_DATE, b"true"),
            (h.STREAM_CURSOR, b"%d" % self._cursor),
            (b"cache-control", b"no-store"),
        ]
        if state.closed:
            headers.append((h.STREAM_CLOSED, b"true"))
        self._exchange.respond(204, headers)

    def _answer_if_ready(self) -> bool:
        state = self._visible()
        if state is None or (state.closed and state.tail == self._start):
            self.finish()
            return True
        if state.tail == self._start:
            return False
        self._leave()
        chunk = _shared_read(self._live.service, self._handle, self._start, self._limit)
        if isinstance(chunk, Rejected):
            reject(self._exchange, chunk)
            return True
        headers: Headers = [
            (h.CONTENT_TYPE, state.content_type.encode("latin-1")),
            (h.STREAM_NEXT_OFFSET, b"%016d" % chunk.end),
            (h.STREAM_CURSOR, b"%d" % self._cursor),
            (b"cache-control", self._caching),
        ]
        at_end = chunk.end == state.tail
        if at_end:
            headers.append((h.STREAM_UP_TO_DATE, b"true"))
            if state.closed:
                headers.append((h.STREAM_CLOSED, b"true"))
        if self._caching != NO_STORE.encode():
            etag = make_etag(incarnation(state), chunk.start, chunk.end, at_end and state.closed)
            headers.append((b"etag", etag.encode()))
        body = join_json(chunk.pieces) if is_json(state.content_type) else chunk.pieces
        self._exchange.respond(200, headers, body)
        return True

    def _visible(self) -> StreamState | None:
        """The stream this read began on, while it is there to be read."""
        state = self._handle.visible
        return None if state is None or state.id != self._stream_id or state.soft_deleted else state

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._live.readers.discard(self)
            self._live.service.unwatch(self._handle, self)


class SseReader:
    """Follows a stream from an offset: what is there, then what comes, until closure or the maximum age.

    Nothing is buffered for a reader that does not keep up: it is left alone until its connection drains,
    and then continues from the store.
    """

    __slots__ = (
        "_cursor",
        "_ends_at",
        "_exchange",
        "_greeted",
        "_handle",
        "_live",
        "_position",
        "_stream_id",
        "_timer",
    )

    def __init__(
        self, live: LiveReads, exchange: Exchange, handle: StreamHandle, start: int, cursor: int
    ) -> None:
        self._live = live
        self._exchange = exchange
        self._handle = handle
        self._position = start
        self._cursor = cursor
        self._stream_id = -1 if handle.visible is None else handle.visible.id
        self._greeted = False
        self._timer: asyncio.TimerHandle | None = None
        # Ages differ a little, so that a crowd which connected together does not reconnect together.
        self._ends_at = live.loop.time() + live.sse_max_age_seconds * random.uniform(0.9, 1.1)

    def start(self) -> None:
        state = self._handle.visible
        assert state is not None, "the caller has just read it"
        if not self._live.admit(self._exchange, wants_events=True):
            return
        headers: Headers = [
            (h.CONTENT_TYPE, b"text/event-stream"),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
        ]
        if not is_text(state.content_type) and not is_json(state.content_type):
            headers.append((h.STREAM_SSE_DATA_ENCODING, b"base64"))
        if state.closed and self._position == state.tail:
            headers += [
                (h.STREAM_NEXT_OFFSET, b"%016d" % state.tail),
                (h.STREAM_UP_TO_DATE, b"true"),
                (h.STREAM_CLOSED, b"true"),
            ]
        self._live.readers.add(self)
        self._live.service.watch(self._handle, self)
        self._exchange.on_closed = self._leave
        self._exchange.on_writable = self.changed
        self._exchange.begin(200, headers)
        self._arm_timer()
        self.changed()
        if self._live.draining:
            self.finish()

    def changed(self) -> None:
        """Send what is new, as far as the connection takes it."""
        exchange = self._exchange
        while exchange.writable and not exchange.closed:
            state = self._handle.visible
            if state is None or state.id != self._stream_id or state.soft_deleted:
                self.finish()
                return
            caught_up = self._position == state.tail
            if caught_up and self._greeted and not state.closed:
                return
            if not self._send_batch(state):
                # A snapshot has overtaken this reader: when it comes back it is told so.
                self.finish()
                return
            self._greeted = True
            if state.closed and self._position == state.tail:
                self.finish()
                return

    def broken(self) -> None:
        self._leave()
        self._exchange.abort()

    def finish(self) -> None:
        """End on an event boundary; the client resumes from the last control event."""
        self._leave()
        if not self._exchange.closed:
            self._exchange.end()

    def _send_batch(self, state: StreamState) -> bool:
        self._cursor = max(self._cursor, next_cursor(self._live.service.now_ms(), None, 0))
        key = ("sse", self._position, self._cursor)
        shared = self._handle.shared
        known = shared.get(key)
        if known is None:
            chunk = self._live.service.read(self._handle, self._position, SSE_BATCH_BYTES)
            if isinstance(chunk, Rejected):
                return False
            encoded, end = encode_batch(state, chunk, self._cursor)
            known = SharedChunk(encoded), end
            if len(encoded) <= SHARED_BYTES and end == state.tail and len(shared) < SHARED_CHUNKS:
                shared[key] = known
        assert isinstance(known, tuple), "only batches are kept under such keys"
        batch, self._position = known
        self._exchange.send_shared(batch)
        return True

    def _arm_timer(self) -> None:
        delay = min(HEARTBEAT_SECONDS, self._ends_at - self._live.loop.time())
        self._timer = self._live.loop.call_later(max(0.0, delay), self._tick)

    def _tick(self) -> None:
        if self._live.loop.time() >= self._ends_at:
            self.finish()
            return
        if self._exchange.writable:
            self._exchange.send_shared(HEARTBEAT)
        self._arm_timer()

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._live.readers.discard(self)
            self._live.service.unwatch(self._handle, self)


def incarnation(state: StreamState) -> str:
    """Unique per created stream, also across stores that were emptied and started again."""
    return f"{state.id:x}-{state.created_ms:x}"


def encode_batch(state: StreamState, chunk: Chunk, cursor: int) -> tuple[bytes, int]:
    """One data event and its control event, as one piece; and where they end."""
    end = chunk.end
    data = b""
    if chunk.pieces:
        if is_json(state.content_type):
            data = encode_text(join_json(chunk.pieces))
        elif is_text(state.content_type):
            payload = b"".join(chunk.pieces)
            if end < state.tail:
                whole = _whole_characters(payload)
                end -= len(payload) - len(whole)
                payload = whole
            data = encode_text(payload)
        else:
            data = encode_base64(b"".join(chunk.pieces))
    up_to_date = end == state.tail
    return data + encode_control(format_offset(end), cursor, up_to_date, up_to_date and state.closed), end


def _whole_characters(payload: bytes) -> bytes:
    """Without a UTF-8 character that the end cuts in two, so that each event is text by itself."""
    for back in range(1, min(4, len(payload)) + 1):
        byte = payload[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            needs = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return payload[:-back] if needs > back and len(payload) > back else payload
    return payload


def _shared_read(service: StreamService, handle: StreamHandle, start: int, limit: int) -> Chunk | Rejected:
    key = ("chunk", start, limit)
    known = handle.shared.get(key)
    if isinstance(known, Chunk):
        return known
    chunk = service.read(handle, start, limit)
    if isinstance(chunk, Chunk) and chunk.end - start <= SHARED_BYTES and len(handle.shared) < SHARED_CHUNKS:
        handle.shared[key] = chunk
    return chunk
