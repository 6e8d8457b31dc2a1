"""The base protocol on a stream: one function per method. Where the stream lives is the router's business."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from perennial.http.access.identity import READ, BeyondScope
from perennial.http.compression import VARY, known_etag
from perennial.http.compression import respond as respond_compressed
from perennial.http.errors import reject
from perennial.http.exchange import Exchange, Headers, Lane, Request
from perennial.http.lanes import AppendAnswers, AppendLane
from perennial.http.live import LiveReads, LongPoll, SseReader, incarnation
from perennial.http.paths import own_url
from perennial.http.query import parse_query
from perennial.protocol import headers as h
from perennial.protocol.append import Append
from perennial.protocol.conditional import NO_STORE, cache_control, make_etag
from perennial.protocol.create import Create, Exists, ForkRequest
from perennial.protocol.cursors import MAX_JITTER_SECONDS, next_cursor, parse_cursor
from perennial.protocol.media import check_content_type, is_json
from perennial.protocol.messages import join_json
from perennial.protocol.names import decode_path
from perennial.protocol.offsets import BEGINNING, NOW, parse_offset
from perennial.protocol.producers import Repeat
from perennial.protocol.rejections import (
    BucketMissing,
    Malformed,
    OffsetTrimmed,
    Rejected,
    StreamGone,
    StreamMissing,
)
from perennial.protocol.state import Appended, Closed, StreamState
from perennial.service.handles import StreamHandle
from perennial.service.reading import Chunk
from perennial.service.streams import StreamService

Resolve = Callable[[str], tuple[str, str] | Rejected]
BEYOND_TAIL: Final = Malformed("the offset lies beyond the stream's tail")
CACHE_CONTROL: Final = b"cache-control"
_APPEND_TERMS: Final = frozenset(
    (h.PRODUCER_ID, h.PRODUCER_EPOCH, h.PRODUCER_SEQ, h.STREAM_SEQ, h.STREAM_CLOSED)
)
ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"


class StreamSurface:
    """Create, append, close, read, look at and delete a stream."""

    def __init__(
        self,
        service: StreamService,
        live: LiveReads,
        *,
        max_chunk: int,
        private: bool,
        resolve: Resolve,
        compression: bool = True,
    ) -> None:
        self._service = service
        self._live = live
        self._max_chunk = max_chunk
        self._private = private
        self._compression = compression
        # From a URL path to the (bucket, name) it addresses; used for Stream-Forked-From.
        self._resolve = resolve
        self.methods = {
            "PUT": self.put,
            "POST": self.post,
            "GET": self.get,
            "HEAD": self.head,
            "DELETE": self.delete,
        }

    # PUT

    def put(self, exchange: Exchange, bucket: str, name: str) -> None:
        command = self._parse_create(exchange.request)
        if isinstance(command, Rejected):
            reject(exchange, command)
            return
        self._service.create(bucket, name, command, partial(self._created, exchange))

    def _parse_create(self, request: Request) -> Create | Rejected:
        get = request.headers.get
        content_type = get(h.CONTENT_TYPE)
        if content_type is not None:
            checked = check_content_type(content_type)
            if isinstance(checked, Malformed):
                return checked
        ttl_text, expires_text = get(h.STREAM_TTL), get(h.STREAM_EXPIRES_AT)
        if ttl_text is not None and expires_text is not None:
            return Malformed("send Stream-TTL or Stream-Expires-At, not both")
        ttl = None if ttl_text is None else h.parse_count("Stream-TTL", ttl_text)
        if isinstance(ttl, Malformed):
            return ttl
        expires_at = None if expires_text is None else h.parse_expires_at(expires_text)
        if isinstance(expires_at, Malformed):
            return expires_at
        fork = self._parse_fork(request)
        if isinstance(fork, Rejected):
            return fork
        return Create(
            body=request.body,
            content_type=content_type,
            ttl_seconds=ttl,
            expires_at_ms=expires_at,
            closed=h.parse_closed(get(h.STREAM_CLOSED)),
            fork=fork,
        )

    def _parse_fork(self, request: Request) -> ForkRequest | Rejected | None:
        get = request.headers.get
        source, offset_text, sub_text = (
            get(h.STREAM_FORKED_FROM),
            get(h.STREAM_FORK_OFFSET),
            get(h.STREAM_FORK_SUB_OFFSET),
        )
        if source is None:
            if offset_text is not None or sub_text is not None:
                return Malformed("Stream-Fork-Offset and Stream-Fork-Sub-Offset need Stream-Forked-From")
            return None
        path = decode_path(_below(request.root, source.encode("latin-1")))
        address = path if isinstance(path, Malformed) else self._resolve(path)
        if isinstance(address, Rejected):
            return address
        offset = None if offset_text is None else parse_offset(offset_text)
        if isinstance(offset, Malformed):
            return offset
        sub_offset = 0 if sub_text is None else h.parse_count("Stream-Fork-Sub-Offset", sub_text)
        if isinstance(sub_offset, Malformed):
            return sub_offset
        bucket, name = address
        # A fork shows what its source holds.
        if request.identity is not None and not request.identity.may(READ, bucket, name):
            return BeyondScope()
        return ForkRequest(bucket, name, offset, sub_offset)

    def _created(self, exchange: Exchange, outcome: Any, state: StreamState | None) -> None:
        if isinstance(outcome, Rejected):
            reject(exchange, outcome)
            return
        assert state is not None, "a created stream has a state"
        headers: Headers = [
            (h.CONTENT_TYPE, state.content_type.encode("latin-1")),
            (h.STREAM_NEXT_OFFSET, b"%016d" % state.tail),
            (CACHE_CONTROL, b"no-store"),
        ]
        if state.closed:
            headers.append((h.STREAM_CLOSED, b"true"))
        if isinstance(outcome, Exists):
            exchange.respond(200, headers)
            return
        headers.append((b"location", own_url(exchange.request)))
        exchange.respond(201, headers)

    # POST

    def post(self, exchange: Exchange, bucket: str, name: str) -> None:
        command = _parse_append(exchange.request)
        if isinstance(command, Append):
            self._service.append(bucket, name, command, partial(self._appended, exchange))
        else:
            reject(exchange, command)

    def lane(self, request: Request, bucket: str, name: str, answers: AppendAnswers) -> Lane | None:
        """For appends with the head of this one."""
        command = _parse_append(request)
        if not isinstance(command, Append) or command.content_type is None:
            return None
        if not command.body or not _APPEND_TERMS.isdisjoint(request.headers):
            return None
        return AppendLane(self._service, bucket, name, command.content_type, answers)

    def _appended(self, exchange: Exchange, outcome: Any, state: StreamState | None) -> None:
        if isinstance(outcome, Rejected):
            reject(exchange, outcome)
            return
        assert state is not None, "an accepted append has a state"
        headers: Headers = [(h.STREAM_NEXT_OFFSET, b"%016d" % state.tail)]
        if state.closed:
            headers.append((h.STREAM_CLOSED, b"true"))
        status = 204
        if isinstance(outcome, (Appended, Closed)):
            producer = outcome.producer
            if producer is not None:
                headers += _producer_headers(producer.epoch, producer.seq)
                if isinstance(outcome, Appended):
                    status = 200
        elif isinstance(outcome, Repeat):
            headers += _producer_headers(outcome.epoch, outcome.last_seq)
        exchange.respond(status, headers)

    # DELETE and HEAD

    def delete(self, exchange: Exchange, bucket: str, name: str) -> None:
        self._service.delete(bucket, name, partial(self._deleted, exchange))

    def _deleted(self, exchange: Exchange, outcome: Any, state: StreamState | None) -> None:
        if isinstance(outcome, Rejected):
            reject(exchange, outcome)
        else:
            exchange.respond(204, [])

    def head(self, exchange: Exchange, bucket: str, name: str) -> None:
        found = visible_stream(self._service, bucket, name)
        if isinstance(found, Rejected):
            reject(exchange, found)
            return
        _, state = found
        headers: Headers = [
            (h.CONTENT_TYPE, state.content_type.encode("latin-1")),
            (h.STREAM_NEXT_OFFSET, b"%016d" % state.tail),
            (CACHE_CONTROL, b"no-store"),
        ]
        if state.ttl_seconds is not None:
            headers.append((h.STREAM_TTL, b"%d" % state.ttl_seconds))
        if state.expires_at_ms is not None:
            headers.append((h.STREAM_EXPIRES_AT, h.format_instant(state.expires_at_ms).encode()))
        if state.closed:
            headers.append((h.STREAM_CLOSED, b"true"))
        if state.snapshot is not None:
            headers.append((h.STREAM_SNAPSHOT_OFFSET, b"%016d" % state.snapshot.offset))
        exchange.respond(200, headers)

    # GET

    def get(self, exchange: Exchange, bucket: str, name: str) -> None:
        query = parse_query(exchange.request.query, "offset", "live", "cursor")
        if isinstance(query, Malformed):
            reject(exchange, query)
            return
        mode, token = query.get("live"), query.get("offset")
        if mode not in (None, "long-poll", "sse"):
            reject(exchange, Malformed(f"live must be 'long-poll' or 'sse', not {mode[:32]!r}"))
            return
        if mode is not None and token is None:
            reject(exchange, Malformed("a live read needs an offset; use offset=-1 for the beginning"))
            return
        position = None if token in (None, BEGINNING, NOW) else parse_offset(token)
        if isinstance(position, Malformed):
            reject(exchange, position)
            return
        found = visible_stream(self._service, bucket, name)
        if isinstance(found, Rejected):
            reject(exchange, found)
            return
        handle, state = found
        start = state.tail if token == NOW else (position or 0)
        if start > state.tail:
            reject(exchange, BEYOND_TAIL)
            return
        if start < state.earliest:
            reject(exchange, OffsetTrimmed(state.earliest))
            return
        if mode is None:
            self._catch_up(exchange, handle, state, start, at_now=token == NOW)
        else:
            jitter = random.randint(1, MAX_JITTER_SECONDS)
            cursor = next_cursor(self._service.now_ms(), parse_cursor(query.get("cursor")), jitter)
            self._read_live(exchange, handle, start, cursor, mode, at_now=token == NOW)

    def _catch_up(
        self, exchange: Exchange, handle: StreamHandle, state: StreamState, start: int, at_now: bool
    ) -> None:
        if ARROW_TYPE in exchange.request.headers.get(b"accept", ""):
            self._catch_up_in_arrow(exchange, handle, state, start)
            return
        chunk = self._service.read(handle, start, self._max_chunk)
        if isinstance(chunk, Rejected):
            reject(exchange, chunk)
            return
        self._service.touch(handle)
        headers = read_headers(state, chunk)
        if at_now:
            exchange.respond(200, [*headers, (CACHE_CONTROL, b"no-store")], read_body(state, chunk))
            return
        at_end = chunk.end == state.tail
        etag = make_etag(incarnation(state), chunk.start, chunk.end, at_end and state.closed)
        caching = self._cache_control(handle) if chunk.pieces else NO_STORE
        headers.append((CACHE_CONTROL, caching.encode()))
        known = known_etag(exchange.request.headers.get(b"if-none-match"), etag)
        if known is not None:
            exchange.respond(304, [*headers, (b"etag", known.encode()), VARY])
        elif self._compression:
            respond_compressed(exchange, headers, read_body(state, chunk), etag)
        else:
            exchange.respond(200, [*headers, (b"etag", etag.encode()), VARY], read_body(state, chunk))

    def _catch_up_in_arrow(
        self, exchange: Exchange, handle: StreamHandle, state: StreamState, start: int
    ) -> None:
        """The same range as a table, for readers that ask for one: a row per message, as in the feed."""
        # Loaded when first asked for: it costs time and memory nobody else should pay.
        from perennial.http.arrow import encode
        from perennial.service.stream_rows import read_rows

        page = read_rows(self._service.store, handle.name, state, start, self._max_chunk)
        if isinstance(page, Rejected):
            reject(exchange, page)
            return
        self._service.touch(handle)
        headers = [
            (name, ARROW_TYPE.encode() if name == h.CONTENT_TYPE else value)
            for name, value in read_headers(state, Chunk(start, page.end, []))
        ]
        headers += [(b"vary", b"accept"), (CACHE_CONTROL, NO_STORE.encode())]
        exchange.respond(200, headers, encode(page.rows))

    def _read_live(
        self, exchange: Exchange, handle: StreamHandle, start: int, cursor: int, mode: str, at_now: bool
    ) -> None:
        # A bad offset must be answered before a stream of events begins.
        probe = self._service.read(handle, start, 1)
        if isinstance(probe, Rejected):
            reject(exchange, probe)
            return
        self._service.touch(handle)
        if mode == "sse":
            SseReader(self._live, exchange, handle, start, cursor).start()
        else:
            # What `now` means depends on when it was said: such an answer is for nobody else.
            caching = (NO_STORE if at_now else self._cache_control(handle)).encode()
            LongPoll(self._live, exchange, handle, start, cursor, self._max_chunk, caching).start()

    def _cache_control(self, handle: StreamHandle) -> str:
        state, deadline = handle.accepted, handle.deadline_ms
        if state is None or deadline is None:
            return cache_control(None, self._private)
        remaining = (deadline - self._service.lifetimes.now_for(state)) // 1000
        return cache_control(remaining, self._private)


def visible_stream(
    service: StreamService, bucket: str, name: str
) -> tuple[StreamHandle, StreamState] | Rejected:
    """What a reader may see: the durable state."""
    if service.buckets.get(bucket) is None:
        return BucketMissing()
    handle = service.look_up(bucket, name)
    state = None if handle is None else handle.visible
    if handle is None or state is None:
        return StreamMissing()
    if state.soft_deleted:
        return StreamGone()
    return handle, state


def read_headers(state: StreamState, chunk: Chunk) -> Headers:
    headers: Headers = [
        (h.CONTENT_TYPE, state.content_type.encode("latin-1")),
        (h.STREAM_NEXT_OFFSET, b"%016d" % chunk.end),
    ]
    if chunk.end == state.tail:
        headers.append((h.STREAM_UP_TO_DATE, b"true"))
        if state.closed:
            headers.append((h.STREAM_CLOSED, b"true"))
    return headers


def read_body(state: StreamState, chunk: Chunk) -> bytes | list[memoryview]:
    return join_json(chunk.pieces) if is_json(state.content_type) else chunk.pieces


def _parse_append(request: Request) -> Append | Malformed:
    headers, body = request.headers, request.body
    content_type = headers.get(h.CONTENT_TYPE)
    if content_type is not None and body:
        checked = check_content_type(content_type)
        if isinstance(checked, Malformed):
            return checked
    if _APPEND_TERMS.isdisjoint(headers):  # as most appends are
        return Append(body, content_type)
    get = headers.get
    producer = h.parse_producer(get(h.PRODUCER_ID), get(h.PRODUCER_EPOCH), get(h.PRODUCER_SEQ))
    if isinstance(producer, Malformed):
        return producer
    seq = h.parse_seq(get(h.STREAM_SEQ))
    if isinstance(seq, Malformed):
        return seq
    return Append(body, content_type, h.parse_closed(get(h.STREAM_CLOSED)), producer, seq)


def _producer_headers(epoch: int, seq: int) -> Headers:
    return [(h.PRODUCER_EPOCH, b"%d" % epoch), (h.PRODUCER_SEQ, b"%d" % seq)]


def _below(root: bytes, path: bytes) -> bytes:
    """A path as this application knows it. Clients that know it below another one may name either."""
    return path[len(root) :] if root and path.startswith(root + b"/") else path
