"""Which names streams and buckets may have. Checked after one percent-decoding, never before."""

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from perennial.protocol.rejections import Malformed

DEFAULT_BUCKET: Final = "default"
PROXY_BUCKET: Final = "proxy"
RESERVED_PREFIX: Final = "__ds"
MAX_NAME_BYTES: Final = 1024
MAX_ID_BYTES: Final = 122
LISTING: Final = "streams"

_BUCKET = re.compile(r"[a-z0-9_-]{4,64}")


def decode_path(raw: bytes) -> str | Malformed:
    """A raw path, percent-decoded once."""
    if b"%" not in raw:
        data = raw
    elif re.search(rb"%(?![0-9A-Fa-f]{2})", raw):
        return Malformed("malformed percent-encoding in the path")
    else:
        data = unquote_to_bytes(raw)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return Malformed("the path is not valid UTF-8")


def check_stream_name(name: str) -> str | Malformed:
    """A name on the base surface: segments joined by `/`, none empty, `.` or `..` (base protocol, 10.2)."""
    if len(name.encode("utf-8")) > MAX_NAME_BYTES:
        return Malformed(f"the stream name is longer than {MAX_NAME_BYTES} bytes")
    if "\0" in name:
        return Malformed("a stream name must not contain NUL")
    if not name:
        return Malformed("the name of the stream is missing")
    for segment in name.split("/"):
        if not segment:
            return Malformed("a stream name must not begin or end with '/', or have '//'")
        if segment in (".", ".."):
            return Malformed(f"a stream name must not have the segment {segment!r}")
    return name


def check_stream_id(bucket: str, stream_id: str) -> str | Malformed:
    """A stream's id within a bucket (extensions, 1.1): one path segment, so no slash in any disguise."""
    if stream_id == LISTING:
        return Malformed(f"the stream id {LISTING!r} is reserved for the bucket's listing")
    if len(f"{bucket}/{stream_id}".encode()) > MAX_ID_BYTES:
        return Malformed(f"bucket and stream id together are longer than {MAX_ID_BYTES} bytes")
    if "/" in stream_id or "\0" in stream_id or ".." in stream_id or stream_id in ("", "."):
        return Malformed(
            f"malformed stream id {stream_id[:80]!r}: it must not be empty or hold '/', NUL or '..'"
        )
    return stream_id


def check_bucket_id(bucket: str) -> str | Malformed:
    if _BUCKET.fullmatch(bucket) is None:
        return Malformed(f"malformed bucket id {bucket[:80]!r}: expected 4 to 64 of a-z, 0-9, '_' and '-'")
    if bucket == RESERVED_PREFIX:
        return Malformed(f"the bucket id {RESERVED_PREFIX!r} is reserved")
    return bucket
