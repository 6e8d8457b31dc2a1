"""Who may come in: service tokens with full access. Without any, everyone who can connect may."""

import hashlib
import hmac
from enum import Enum, auto

from perennial.http.errors import fail
from perennial.http.exchange import Exchange, Request


class Verdict(Enum):
    """What a request's service token is worth."""

    OPEN = auto()  # no tokens are configured: whoever can connect is trusted
    KNOWN = auto()
    MISSING = auto()
    UNKNOWN = auto()

    @property
    def admits(self) -> bool:
        return self in (Verdict.OPEN, Verdict.KNOWN)


class ServiceTokens:
    def __init__(self, tokens: tuple[str, ...]) -> None:
        # Digests, so that a comparison takes the same time whatever was sent.
        self._digests = [_digest(token) for token in tokens]

    def admit(self, exchange: Exchange) -> bool:
        """True when the request may proceed; otherwise it has been answered."""
        if self.judge(exchange.request).admits:
            return True
        challenge = [(b"www-authenticate", b'Bearer realm="perennial"')]
        fail(exchange, 401, "UNAUTHORIZED", "send a service token: Authorization: Bearer <token>", challenge)
        return False

    def judge(self, request: Request) -> Verdict:
        """For surfaces that answer in words of their own."""
        if not self._digests:
            return Verdict.OPEN
        sent = request.headers.get(b"authorization")
        if sent is None:
            return Verdict.MISSING
        scheme, _, token = sent.partition(" ")
        known = scheme.lower() == "bearer" and self._knows(token.strip())
        return Verdict.KNOWN if known else Verdict.UNKNOWN

    def _knows(self, token: str) -> bool:
        sent = _digest(token)
        # All are compared, so that the time does not tell which one it was.
        return sum(hmac.compare_digest(sent, known) for known in self._digests) > 0


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("latin-1", "replace")).digest()
