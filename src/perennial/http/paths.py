"""URL paths: which bucket, stream or part of one they address."""

from functools import lru_cache
from typing import Final, Literal

import msgspec

from perennial.http.exchange import Request
from perennial.protocol.headers import STREAM_CLOSED, parse_closed
from perennial.protocol.names import (
    DEFAULT_BUCKET,
    LISTING,
    PROXY_BUCKET,
    RESERVED_PREFIX,
    check_bucket_id,
    check_stream_id,
    check_stream_name,
    decode_path,
)
from perennial.protocol.rejections import Malformed, Rejected, StreamMissing

STREAM_ROOT: Final = "/v1/stream/"
RAW_STREAM_ROOT: Final = b"/v1/stream/"
BUCKET_ROOT: Final = "/ds/"
# Longer paths are looked at anew each time: anyone can send them, and thousands would be a lot to remember.
REMEMBERED_BYTES: Final = 512

Kind = Literal["bucket", "listing", "stream", "snapshot", "bootstrap"]


class BucketPath(msgspec.Struct, frozen=True):
    """`/ds/{bucket}[/streams | /{stream}[/bootstrap | /snapshot[/{offset}]]]`"""

    kind: Kind
    bucket: str
    stream: str = ""
    snapshot: str | None = None

    def is_read_or_close(self, request: Request) -> bool:
        """All that is done to a proxied stream from outside the proxy."""
        if request.method in ("GET", "HEAD"):
            return True
        closes = parse_closed(request.headers.get(STREAM_CLOSED)) and not request.body
        return self.kind == "stream" and request.method == "POST" and closes


def parse_bucket_path(raw: bytes) -> BucketPath | Malformed:
    """Split before decoding, so that an encoded slash stays inside its segment and is refused there."""
    parts = []
    for segment in raw[len(BUCKET_ROOT) :].split(b"/"):
        part = decode_path(segment)
        if isinstance(part, Malformed):
            return part
        parts.append(part)
    bucket = check_bucket_id(parts[0])
    if isinstance(bucket, Malformed):
        return bucket
    if len(parts) == 1:
        return BucketPath("bucket", bucket)
    if parts[1:] == [LISTING]:
        return BucketPath("listing", bucket)
    stream = check_stream_id(bucket, parts[1])
    if isinstance(stream, Malformed):
        return stream
    match parts[2:]:
        case []:
            return BucketPath("stream", bucket, stream)
        case ["bootstrap"]:
            return BucketPath("bootstrap", bucket, stream)
        case ["snapshot"]:
            return BucketPath("snapshot", bucket, stream)
        case ["snapshot", offset]:
            return BucketPath("snapshot", bucket, stream, offset)
    return Malformed("a stream id must not contain '/'; below a stream there are only snapshot and bootstrap")


def own_path(request: Request) -> bytes:
    """The path under which the client knows what it asked for: also below another application."""
    return request.root + request.path


def own_url(request: Request) -> bytes:
    host = request.headers.get(b"host")
    origin = b"" if host is None else f"{request.scheme}://{host}".encode("latin-1")
    return origin + request.root + request.path


def resolve_raw_stream(path: bytes) -> tuple[str, str] | Rejected:
    """The (bucket, name) of a request path under `STREAM_ROOT`, as sent."""
    return _remembered(path) if len(path) <= REMEMBERED_BYTES else _resolve(path)


def _resolve(path: bytes) -> tuple[str, str] | Rejected:
    decoded = decode_path(path)
    return decoded if isinstance(decoded, Malformed) else resolve_stream(decoded)


# Decoding and checking a name takes 2.4 µs, longer than deciding the append it is for (1.3 µs).
_remembered = lru_cache(maxsize=16_384)(_resolve)


def resolve_stream(path: str) -> tuple[str, str] | Rejected:
    """The (bucket, name) that a decoded URL path addresses, on either surface."""
    if path.startswith(BUCKET_ROOT):
        bucket, _, stream = path[len(BUCKET_ROOT) :].partition("/")
        for checked in (check_bucket_id(bucket), check_stream_id(bucket, stream)):
            if isinstance(checked, Malformed):
                return checked
        return StreamMissing() if bucket == PROXY_BUCKET else (bucket, stream)
    if not path.startswith(STREAM_ROOT):
        return Malformed(f"{path[:80]!r} is not the path of a stream on this server ({STREAM_ROOT}…)")
    name = check_stream_name(path[len(STREAM_ROOT) :])
    if isinstance(name, Malformed):
        return name
    if name.partition("/")[0] == RESERVED_PREFIX:
        return StreamMissing()
    return DEFAULT_BUCKET, name
