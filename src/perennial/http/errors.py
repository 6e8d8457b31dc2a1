"""The only table from refusal to status. Bodies are `{"error": {"code", "message"}}` on every surface."""

from collections.abc import Callable
from typing import Any

import msgspec

from perennial.http.access.identity import BeyondScope
from perennial.http.exchange import Exchange, Headers
from perennial.protocol import rejections as r
from perennial.protocol.headers import (
    CONTENT_TYPE,
    PRODUCER_EPOCH,
    PRODUCER_EXPECTED_SEQ,
    PRODUCER_RECEIVED_SEQ,
    STREAM_CLOSED,
    STREAM_NEXT_OFFSET,
)
from perennial.service.commits import NotStored

JSON_TYPE: Headers = [(CONTENT_TYPE, b"application/json")]
NO_STORE: Headers = [(b"cache-control", b"no-store")]


def _no_headers(rejected: Any) -> Headers:
    return []


def _closed(rejected: r.StreamClosed) -> Headers:
    return [(STREAM_CLOSED, b"true"), (STREAM_NEXT_OFFSET, b"%016d" % rejected.tail)]


def _fenced(rejected: r.Fenced) -> Headers:
    return [(PRODUCER_EPOCH, b"%d" % rejected.current_epoch)]


def _gap(rejected: r.Gap) -> Headers:
    return [
        (PRODUCER_EXPECTED_SEQ, b"%d" % rejected.expected),
        (PRODUCER_RECEIVED_SEQ, b"%d" % rejected.received),
    ]


def _retry(rejected: Any) -> Headers:
    return [(b"retry-after", b"1")]


STATUS: dict[type[r.Rejected], tuple[int, str, Callable[[Any], Headers]]] = {
    r.Malformed: (400, "BAD_REQUEST", _no_headers),
    r.StreamMissing: (404, "STREAM_NOT_FOUND", _no_headers),
    r.BucketMissing: (404, "BUCKET_NOT_FOUND", _no_headers),
    r.StreamGone: (410, "STREAM_GONE", _no_headers),
    r.ConfigConflict: (409, "CONFIG_CONFLICT", _no_headers),
    r.NameTaken: (409, "NAME_TAKEN", _no_headers),
    r.ContentTypeConflict: (409, "CONTENT_TYPE_CONFLICT", _no_headers),
    r.StreamClosed: (409, "STREAM_CLOSED", _closed),
    r.SequenceRegression: (409, "SEQUENCE_REGRESSION", _no_headers),
    r.Fenced: (403, "PRODUCER_FENCED", _fenced),
    r.Gap: (409, "SEQUENCE_GAP", _gap),
    r.OffsetTrimmed: (410, "OFFSET_TRIMMED", _no_headers),
    r.BeyondTail: (409, "BEYOND_TAIL", _no_headers),
    r.SnapshotMissing: (404, "SNAPSHOT_NOT_FOUND", _no_headers),
    r.SnapshotInUse: (409, "SNAPSHOT_IN_USE", _no_headers),
    r.BucketExists: (409, "BUCKET_EXISTS", _no_headers),
    r.BucketNotEmpty: (409, "BUCKET_NOT_EMPTY", _no_headers),
    r.BuiltInBucket: (409, "BUCKET_BUILT_IN", _no_headers),
    r.QuotaExceeded: (507, "QUOTA_EXCEEDED", _no_headers),
    r.SourceMissing: (404, "SOURCE_NOT_FOUND", _no_headers),
    r.SourceGone: (409, "SOURCE_GONE", _no_headers),
    BeyondScope: (403, "FORBIDDEN", _no_headers),
    NotStored: (503, "NOT_STORED", _retry),
}


def reject(exchange: Exchange, rejected: r.Rejected) -> None:
    status, code, headers = STATUS[type(rejected)]
    fail(exchange, status, code, rejected.message, headers(rejected))


def fail(exchange: Exchange, status: int, code: str, message: str, headers: Headers | None = None) -> None:
    body = msgspec.json.encode({"error": {"code": code, "message": message}})
    exchange.respond(status, [*(headers or []), *JSON_TYPE, *NO_STORE], body)
