"""Service tokens and scoped tokens. Only hashes are kept, and secrets are compared in constant time.

A plain SHA-256 is enough because tokens are long and random (`new_token`): there is nothing to guess that a
slow hash would have to protect.
"""

import hashlib
import hmac
import secrets

from perennial.http.access.identity import SCOPES, Identity
from perennial.settings import TokenSetting

PREFIX = "sha256:"
# Enough of a hash to find its entry by, and far too little to help anyone find the token.
SELECTOR_BYTES = 4


def new_token() -> str:
    """256 bits, recognisable in a leak by its first letters."""
    return f"pst_{secrets.token_urlsafe(32)}"


def hash_token(token: str) -> str:
    """As in `[[tokens]]`."""
    return PREFIX + digest(token).hex()


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("latin-1", "replace")).digest()


class Tokens:
    """All tokens of a configuration, by the hashes they have."""

    def __init__(self, service: tuple[str, ...], scoped: tuple[TokenSetting, ...]) -> None:
        self._known: dict[bytes, list[tuple[bytes, Identity]]] = {}
        for token in service:
            hashed = digest(token)
            # A name to count and log by that tells nothing about the token.
            name = f"service:{hashlib.sha256(hashed).hexdigest()[:8]}"
            self._add(hashed, Identity(name, SCOPES, full=True))
        for setting in scoped:
            hashed = bytes.fromhex(setting.hash.removeprefix(PREFIX))
            name = f"token:{setting.name}"
            self._add(hashed, Identity(name, setting.scopes, setting.buckets, setting.prefix))

    def find(self, token: str) -> Identity | None:
        hashed = digest(token)
        found = None
        for known, identity in self._known.get(hashed[:SELECTOR_BYTES], ()):
            if hmac.compare_digest(hashed, known):
                found = identity
        return found

    def _add(self, hashed: bytes, identity: Identity) -> None:
        self._known.setdefault(hashed[:SELECTOR_BYTES], []).append((hashed, identity))
