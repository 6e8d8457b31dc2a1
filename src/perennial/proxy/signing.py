"""Pre-signed URLs: whoever holds one may read, abort and append to one stream (proxy protocol, 8).

The signature is HMAC-SHA256 over the stream id and the expiry. Several secrets may verify, so that a new one
can take over without breaking URLs already given out; the first one signs.
"""

import base64
import hmac
import logging
import os
import re
import secrets
from enum import Enum, auto
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from perennial.store.archives import SECRET_FILE

log = logging.getLogger("perennial.proxy")

SECRET_BYTES: Final = 32
SHORT_SECRET: Final = 16

_EXPIRES = re.compile(r"[0-9]{1,15}")


class Verdict(Enum):
    VALID = auto()
    EXPIRED = auto()
    INVALID = auto()


class Signed(msgspec.Struct, frozen=True):
    """What a pre-signed URL says. Nothing in it is true before `Signer.judge` has been asked."""

    stream_id: str
    expires: str
    signature: str

    def __repr__(self) -> str:
        return f"Signed(stream_id={self.stream_id!r})"  # the rest is as good as a password

    @property
    def query(self) -> str:
        return f"expires={self.expires}&signature={self.signature}"


class Signer:
    def __init__(self, keys: tuple[bytes, ...]) -> None:
        self._keys = keys

    def sign(self, stream_id: str, ttl_seconds: int, now: float) -> Signed:
        # Whole seconds, as the document asks: a URL lives its TTL to within half a second.
        expires = str(round(now) + ttl_seconds)
        return Signed(stream_id, expires, _signature(self._keys[0], stream_id, expires))

    def judge(self, claim: Signed, now: float) -> Verdict:
        sent = claim.signature.encode("utf-8", "replace")
        # All are compared, in constant time each, so that the time tells nothing about any of them.
        matches = [
            hmac.compare_digest(sent, _signature(key, claim.stream_id, claim.expires).encode())
            for key in self._keys
        ]
        if not any(matches) or _EXPIRES.fullmatch(claim.expires) is None:
            return Verdict.INVALID
        return Verdict.EXPIRED if now >= int(claim.expires) else Verdict.VALID


def parse_signed_url(url: str) -> Signed | None:
    """The stream and signature a URL names, whatever host and path it goes through; None if it has none."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("", "http", "https") or bool(parts.scheme) != bool(parts.netloc):
            return None
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
    except ValueError:
        return None
    base, slash, stream_id = parts.path.rpartition("/")
    if not slash or not base or not stream_id or not query.get("expires") or not query.get("signature"):
        return None
    return Signed(stream_id, query["expires"], query["signature"])


def load_keys(configured: tuple[str, ...], data: Path) -> tuple[bytes, ...]:
    """The configured secrets, or one made at the first start and kept beside the data ever since."""
    if any(len(secret) < SHORT_SECRET for secret in configured):
        log.warning("a proxy secret has under %d characters: it could be found by trying", SHORT_SECRET)
    if configured:
        return tuple(secret.encode() for secret in configured)
    path = data / SECRET_FILE
    try:
        return (path.read_bytes(),)
    except FileNotFoundError:
        return (_keep_new_key(path),)


def _keep_new_key(path: Path) -> bytes:
    key = secrets.token_bytes(SECRET_BYTES)
    # Complete or not there at all: a half-written key would be taken for a short one at the next start.
    half = path.with_suffix(".new")
    half.unlink(missing_ok=True)
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return key


def _signature(key: bytes, stream_id: str, expires: str) -> str:
    # Neither part can contain a line feed that would let one pair pass for another: the expiry is digits
    # whenever the verdict is not INVALID.
    text = f"perennial proxy url\n{stream_id}\n{expires}"
    digest = hmac.digest(key, text.encode("utf-8", "replace"), "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
