"""Key layout. Big-endian numbers sort like numbers, and a bucket id never contains NUL.

| column family | key                        | value                                  |
| ------------- | -------------------------- | -------------------------------------- |
| streams       | bucket NUL name            | `StreamRow`                            |
| blocks        | stream id, offset          | a block (see `blocks`)                 |
| producers     | stream id, producer id     | `ProducerState`                        |
| feed          | bucket NUL position        | a commit's messages (see `feedlog`)    |
| expiry        | deadline in ms, stream key | nothing: the key says it all           |
| sealed        | stream id                  | the offset up to which blocks are full |
| blobs         | blob id, index             | a piece of a snapshot                  |
| uploads       | blob id                    | nothing: a snapshot still coming in    |
| graves        | bucket NUL stream id       | feed entries before this offset are dead |
| garbage       | kind, id                   | what waits to be removed, see `Garbage` |
| buckets       | bucket                     | `BucketRow`                            |
| proxy         | a name                     | what the proxy remembers of a stream   |
| meta          | a name                     | counters and the format's version      |
"""

import struct
from functools import lru_cache
from typing import Final

from perennial.store.errors import StoreCorrupt

COLUMN_FAMILIES: Final = (
    "streams",
    "blocks",
    "producers",
    "feed",
    "expiry",
    "sealed",
    "blobs",
    "uploads",
    "graves",
    "garbage",
    "buckets",
    "proxy",
    "meta",
)


class Garbage:
    """Kinds of garbage keys; the id follows."""

    STREAM: Final = b"s"  # all blocks and producers of a stream
    BLOB: Final = b"b"  # a snapshot's pieces
    TRIM: Final = b"t"  # a stream's blocks before the offset in the value


# The largest number a key can hold.
LAST: Final = (1 << 64) - 1

_NUMBER = struct.Struct(">Q")
_PAIR = struct.Struct(">QQ")

number_key = _NUMBER.pack
block_key = _PAIR.pack


def parse_number(key: bytes) -> int:
    if len(key) < _NUMBER.size:
        raise StoreCorrupt(f"{key!r} is too short to be a number")
    number: int = _NUMBER.unpack_from(key)[0]
    return number


def parse_block_key(key: bytes) -> tuple[int, int]:
    stream_id, offset = _PAIR.unpack(key)
    return stream_id, offset


# On every request's path, and most requests go to streams that were asked for a moment ago.
@lru_cache(maxsize=16_384)
def stream_key(bucket: str, name: str) -> bytes:
    return f"{bucket}\0{name}".encode()


def parse_stream_key(key: bytes) -> tuple[str, str]:
    bucket, _, name = key.decode().partition("\0")
    return bucket, name


def producer_key(stream_id: int, producer_id: str) -> bytes:
    return _NUMBER.pack(stream_id) + producer_id.encode()


def feed_key(bucket: str, position: int) -> bytes:
    return bucket.encode() + b"\0" + _NUMBER.pack(position)


def grave_key(bucket: str, stream_id: int) -> bytes:
    return bucket.encode() + b"\0" + _NUMBER.pack(stream_id)


def expiry_key(deadline_ms: int, key: bytes) -> bytes:
    return _NUMBER.pack(deadline_ms) + key


def parse_expiry_key(key: bytes) -> tuple[int, bytes]:
    return parse_number(key), key[8:]


def after(key: bytes) -> bytes:
    """The smallest key greater than every key that begins with `key`."""
    trimmed = key.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1])
