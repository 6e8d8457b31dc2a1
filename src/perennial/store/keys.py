"""Key layout. Big-endian numbers sort like numbers, and a bucket id never contains NUL.

| column family | key                        | value                                  |
| ------------- | -------------------------- | -------------------------------------- |
| streams       | bucket NUL name            | `StreamRow`                            |
| blocks        | stream id, offset          | a block (see `blocks`)                 |
| producers     | stream id, producer id     | `ProducerState`                        |
| feed          | bucket NUL position        | a commit's messages (see `feedlog`)    |
| expiry        | deadline in ms, stream key | nothing: the key says it all           |
| sealed        | stream id                  | the offset up to which blocks are full |
| garbage       | stream id                  | nothing: data waiting to be removed    |
| buckets       | bucket                     | `BucketRow`                            |
| meta          | a name                     | counters and the format's version      |
"""

import struct
from typing import Final

COLUMN_FAMILIES: Final = (
    "streams",
    "blocks",
    "producers",
    "feed",
    "expiry",
    "sealed",
    "garbage",
    "buckets",
    "meta",
)

_NUMBER = struct.Struct(">Q")
_PAIR = struct.Struct(">QQ")

number_key = _NUMBER.pack
block_key = _PAIR.pack


def parse_number(key: bytes) -> int:
    number: int = _NUMBER.unpack_from(key)[0]
    return number


def parse_block_key(key: bytes) -> tuple[int, int]:
    stream_id, offset = _PAIR.unpack(key)
    return stream_id, offset


def stream_key(bucket: str, name: str) -> bytes:
    return f"{bucket}\0{name}".encode()


def parse_stream_key(key: bytes) -> tuple[str, str]:
    bucket, _, name = key.decode().partition("\0")
    return bucket, name


def producer_key(stream_id: int, producer_id: str) -> bytes:
    return _NUMBER.pack(stream_id) + producer_id.encode()


def feed_key(bucket: str, position: int) -> bytes:
    return bucket.encode() + b"\0" + _NUMBER.pack(position)


def expiry_key(deadline_ms: int, key: bytes) -> bytes:
    return _NUMBER.pack(deadline_ms) + key


def parse_expiry_key(key: bytes) -> tuple[int, bytes]:
    return parse_number(key), key[8:]


def after(key: bytes) -> bytes:
    """The smallest key greater than every key that begins with `key`."""
    trimmed = key.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1])
