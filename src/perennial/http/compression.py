"""Compressed catch-up reads, for clients that accept it and data that is worth it.

Only whole answers of some size: a live read is small or urgent, and an event stream must not wait for a
compressor to let go of its bytes. Each coding is a representation of its own, with its own ETag.
"""

import asyncio
import logging
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from perennial.http.exchange import Body, Exchange, Headers
from perennial.protocol.conditional import matches

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

log = logging.getLogger("perennial.http")

SMALLEST_BYTES: Final = 1024
# Up to here it takes less than a millisecond; beyond, it has a thread, and the loop goes on.
INLINE_BYTES: Final = 32 * 1024
SAMPLE_BYTES: Final = 4096
WORTHWHILE: Final = 0.9  # of the size, at most
# Of a kind that is compressed already.
DENSE: Final = (
    "image/",
    "video/",
    "audio/",
    "font/",
    "application/zip",
    "application/gzip",
    "application/zstd",
)

VARY: Final = (b"vary", b"accept, accept-encoding")


def _gzip(data: bytes) -> bytes:
    return zlib.compress(data, 3, wbits=31)  # 31: with the header and trailer of gzip


def _zstd(data: bytes) -> bytes:
    return zstd.compress(data, 3)


CODINGS: Final[dict[str, Callable[[bytes], bytes]]] = {"zstd": _zstd, "gzip": _gzip}  # the better one first


def choose(accept_encoding: str) -> str | None:
    """The coding of ours that the client likes best (RFC 9110, 12.5.3)."""
    liked: dict[str, float] = {}
    for part in accept_encoding.lower().split(","):
        coding, _, parameters = part.partition(";")
        weight = parameters.strip().removeprefix("q=") if parameters else "1"
        try:
            liked[coding.strip()] = float(weight)
        except ValueError:
            liked[coding.strip()] = 0.0
    wanted = [coding for coding in CODINGS if liked.get(coding, 0.0) > 0]
    return max(wanted, key=lambda coding: liked[coding], default=None)


def encoded_etag(etag: str, coding: str) -> str:
    return f'{etag[:-1]}:{coding}"'


def known_etag(if_none_match: str | None, etag: str) -> str | None:
    """The tag of the representation that the client already has, in whichever coding."""
    if if_none_match is None:
        return None
    tags = (etag, *(encoded_etag(etag, coding) for coding in CODINGS))
    return next((tag for tag in tags if matches(if_none_match, tag)), None)


def respond(exchange: Exchange, headers: Headers, body: Body, etag: str) -> None:
    """Answer 200, compressed if that is asked for and worth it; perhaps a little later."""
    accepted = exchange.request.headers.get(b"accept-encoding")
    size = 0 if accepted is None else _size(body)
    coding = choose(accepted) if accepted is not None and size >= SMALLEST_BYTES else None
    if coding is None or not _is_worthwhile(headers, body):
        _respond_plain(exchange, headers, body, etag)
        return
    data = body if isinstance(body, bytes) else b"".join(body)
    if size <= INLINE_BYTES:
        _respond_encoded(exchange, headers, data, etag, coding, CODINGS[coding](data))
        return
    future = asyncio.get_running_loop().run_in_executor(None, CODINGS[coding], data)
    future.add_done_callback(lambda done: _finish(exchange, headers, data, etag, coding, done))


def _finish(
    exchange: Exchange, headers: Headers, data: bytes, etag: str, coding: str, done: asyncio.Future[bytes]
) -> None:
    if done.cancelled() or done.exception() is not None:
        log.error("compressing a read failed: %s", "cancelled" if done.cancelled() else done.exception())
        _respond_plain(exchange, headers, data, etag)
    else:
        _respond_encoded(exchange, headers, data, etag, coding, done.result())


def _respond_plain(exchange: Exchange, headers: Headers, body: Body, etag: str) -> None:
    exchange.respond(200, [*headers, (b"etag", etag.encode()), VARY], body)


def _respond_encoded(
    exchange: Exchange, headers: Headers, data: bytes, etag: str, coding: str, encoded: bytes
) -> None:
    if len(encoded) >= WORTHWHILE * len(data):
        _respond_plain(exchange, headers, data, etag)
        return
    tag = (b"etag", encoded_etag(etag, coding).encode())
    exchange.respond(200, [*headers, tag, (b"content-encoding", coding.encode()), VARY], encoded)


def _size(body: Body) -> int:
    return len(body) if isinstance(body, bytes) else sum(map(len, body))


def _is_worthwhile(headers: Headers, body: Body) -> bool:
    content_type = next((value for name, value in headers if name == b"content-type"), b"")
    if content_type.decode("latin-1").lower().startswith(DENSE):
        return False
    sample = _beginning(body if not isinstance(body, bytes) else (body,))
    return len(zlib.compress(sample, 1)) < WORTHWHILE * len(sample)


def _beginning(pieces: Sequence[bytes | memoryview]) -> bytes:
    sample = b""
    for piece in pieces:
        sample += bytes(piece[: SAMPLE_BYTES - len(sample)])
        if len(sample) >= SAMPLE_BYTES:
            break
    return sample
