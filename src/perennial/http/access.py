"""Who may come in: service tokens with full access. Without any, everyone who can connect may."""

import hashlib
import hmac

from perennial.http.errors import fail
from perennial.http.exchange import Exchange


class ServiceTokens:
    def __init__(self, tokens: tuple[str, ...]) -> None:
        # Digests, so that a comparison takes the same time whatever was sent.
        self._digests = [_digest(token) for token in tokens]

    def admit(self, exchange: Exchange) -> bool:
        """True when the request may proceed; otherwise it has been answered."""
        if not self._digests:
            return True
        scheme, _, token = exchange.request.headers.get(b"authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._knows(token.strip()):
            return True
        challenge = [(b"www-authenticate", b'Bearer realm="perennial"')]
        fail(exchange, 401, "UNAUTHORIZED", "send a service token: Authorization: Bearer <token>", challenge)
        return False

    def _knows(self, token: str) -> bool:
        sent = _digest(token)
        # All are compared, so that the time does not tell which one it was.
        return sum(hmac.compare_digest(sent, known) for known in self._digests) > 0


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("latin-1", "replace")).digest()
