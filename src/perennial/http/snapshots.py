"""Snapshots and bootstrap of a stream (extensions, 2 and 3): only on the `/ds/` surface."""

import secrets
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from perennial.http.base import visible_stream
from perennial.http.errors import reject
from perennial.http.exchange import Exchange, Headers, Request
from perennial.http.paths import own_path
from perennial.http.query import parse_query
from perennial.http.streaming import Pump
from perennial.protocol import headers as h
from perennial.protocol.media import DEFAULT_CONTENT_TYPE, check_content_type
from perennial.protocol.multipart import close_parts, open_part
from perennial.protocol.offsets import BEGINNING, format_offset, parse_offset
from perennial.protocol.rejections import Malformed, Rejected, SnapshotInUse, SnapshotMissing
from perennial.protocol.state import Snapshot, StreamState
from perennial.service.reading import messages_between
from perennial.service.streams import StreamService
from perennial.service.uploads import Upload

SEND_BYTES: Final = 128 * 1024


class Refused:
    """Takes in a body that will not be published, so that the client hears why."""

    def __init__(self, rejected: Rejected) -> None:
        self.rejected = rejected

    def feed(self, data: bytes) -> None:
        pass

    def abandon(self) -> None:
        pass


class SnapshotSurface:
    def __init__(self, service: StreamService) -> None:
        self._service = service

    # Publishing

    def open_upload(self, request: Request, bucket: str, name: str, token: str) -> Upload | Refused:
        """Where the body goes. What is refused now stays refused, since the body is gone by then."""
        offset, content_type = parse_offset(token), _content_type(request)
        if isinstance(offset, Malformed):
            return Refused(offset)
        if isinstance(content_type, Malformed):
            return Refused(content_type)
        upload = self._service.begin_upload(bucket, name, offset)
        return upload if isinstance(upload, Upload) else Refused(upload)

    def put(self, exchange: Exchange, bucket: str, name: str, token: str) -> None:
        offset, content_type = parse_offset(token), _content_type(exchange.request)
        if isinstance(offset, Malformed):
            reject(exchange, offset)
            return
        if isinstance(content_type, Malformed):
            reject(exchange, content_type)
            return
        upload = exchange.request.sink
        if not isinstance(upload, Upload | Refused):  # an empty body, or one that came whole
            upload = self.open_upload(exchange.request, bucket, name, token)
            upload.feed(exchange.request.body)
        if isinstance(upload, Refused):
            reject(exchange, upload.rejected)
            return
        self._service.publish(bucket, name, offset, content_type, upload, partial(self._published, exchange))

    def _published(self, exchange: Exchange, outcome: Any, state: StreamState | None) -> None:
        if isinstance(outcome, Rejected):
            reject(exchange, outcome)
        else:
            exchange.respond(
                204, [(h.STREAM_SNAPSHOT_OFFSET, format_offset(outcome.snapshot.offset).encode())]
            )

    # Reading and deleting

    def latest(self, exchange: Exchange, bucket: str, name: str) -> None:
        found = visible_stream(self._service, bucket, name)
        if isinstance(found, Rejected):
            reject(exchange, found)
            return
        snapshot = found[1].snapshot
        if snapshot is None:
            reject(exchange, SnapshotMissing())
            return
        offset = format_offset(snapshot.offset).encode()
        location = own_path(exchange.request).rstrip(b"/") + b"/" + offset
        headers = [
            (b"location", location),
            (h.STREAM_SNAPSHOT_OFFSET, offset),
            (b"cache-control", b"no-store"),
        ]
        exchange.respond(307, headers)

    def get(self, exchange: Exchange, bucket: str, name: str, token: str) -> None:
        found = self._find(bucket, name, token)
        if isinstance(found, Rejected):
            reject(exchange, found)
            return
        state, snapshot = found
        offset = format_offset(snapshot.offset).encode()
        headers: Headers = [
            (h.CONTENT_TYPE, snapshot.content_type.encode("latin-1")),
            (h.STREAM_SNAPSHOT_OFFSET, offset),
            (h.STREAM_NEXT_OFFSET, offset),
            (b"cache-control", b"no-store"),
        ]
        if snapshot.offset == state.tail:
            headers.append((h.STREAM_UP_TO_DATE, b"true"))
        if exchange.request.method == "HEAD":
            exchange.respond(200, headers)
            return
        release = self._service.hold(snapshot.blob)
        exchange.begin(200, headers)
        Pump(exchange, self._pieces(snapshot), release).start()

    def delete(self, exchange: Exchange, bucket: str, name: str, token: str) -> None:
        found = self._find(bucket, name, token)
        # Only the latest is ever visible, and it is what bootstrap begins with.
        reject(exchange, found if isinstance(found, Rejected) else SnapshotInUse())

    def _find(self, bucket: str, name: str, token: str) -> tuple[StreamState, Snapshot] | Rejected:
        offset = parse_offset(token)
        if isinstance(offset, Malformed):
            return offset
        found = visible_stream(self._service, bucket, name)
        if isinstance(found, Rejected):
            return found
        snapshot = found[1].snapshot
        if snapshot is None or snapshot.offset != offset:
            return SnapshotMissing()
        return found[1], snapshot

    def _pieces(self, snapshot: Snapshot) -> Iterator[bytes]:
        index = sent = 0
        while sent < snapshot.size:
            piece = self._service.store.piece(snapshot.blob, index)
            assert piece is not None, "a published snapshot is complete, and held while it is read"
            yield piece
            sent += len(piece)
            index += 1

    # Bootstrap

    def bootstrap(self, exchange: Exchange, bucket: str, name: str) -> None:
        query = parse_query(exchange.request.query, "live")
        if isinstance(query, Malformed) or "live" in query:
            refusal = Malformed("bootstrap is one-shot: tail with a live read from its Stream-Next-Offset")
            reject(exchange, refusal)
            return
        found = visible_stream(self._service, bucket, name)
        if isinstance(found, Rejected):
            reject(exchange, found)
            return
        handle, state = found
        self._service.touch(handle)
        # Drawn after everything in the response was committed, so no part can have been made to hold it.
        boundary = f"perennial-{secrets.token_hex(16)}"
        snapshot = state.snapshot
        offset = BEGINNING if snapshot is None else format_offset(snapshot.offset)
        headers: Headers = [
            (h.CONTENT_TYPE, f"multipart/mixed; boundary={boundary}".encode()),
            (h.STREAM_SNAPSHOT_OFFSET, offset.encode()),
            (h.STREAM_NEXT_OFFSET, format_offset(state.tail).encode()),
            (h.STREAM_UP_TO_DATE, b"true"),
            (b"cache-control", b"no-store"),
        ]
        if state.closed:
            headers.append((h.STREAM_CLOSED, b"true"))
        held = [segment.id for segment in state.lineage] + [state.id] + ([snapshot.blob] if snapshot else [])
        release = self._service.hold(*held)
        exchange.begin(200, headers)
        Pump(exchange, self._parts(state, boundary.encode()), release).start()

    def _parts(self, state: StreamState, boundary: bytes) -> Iterator[bytes]:
        """The view is `state`: what is appended from now on is not in it."""
        snapshot = state.snapshot
        if snapshot is None:
            yield open_part(boundary, DEFAULT_CONTENT_TYPE, first=True)
        else:
            yield open_part(boundary, snapshot.content_type, first=True)
            yield from self._pieces(snapshot)
        head = open_part(boundary, state.content_type)
        batch: list[bytes | memoryview] = []
        size = 0
        for message in messages_between(self._service.store, state, state.earliest, state.tail):
            batch += [head, message]
            size += len(head) + len(message)
            if size >= SEND_BYTES:
                yield b"".join(batch)
                batch, size = [], 0
        batch.append(close_parts(boundary))
        yield b"".join(batch)


def _content_type(request: Request) -> str | Malformed:
    return check_content_type(request.headers.get(h.CONTENT_TYPE) or DEFAULT_CONTENT_TYPE)
