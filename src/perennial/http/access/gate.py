"""From a request to an identity, and the answers for those who may not: 401 and 403.

What someone may do is judged before anything is looked up, so the answer 403 is the same whether or not the
stream exists.
"""

import logging
from typing import Final

from perennial.http.access.identity import ANYONE, MISSING, READ, UNKNOWN, WRITE, BeyondScope, Identity
from perennial.http.access.jwt import JwtVerifier
from perennial.http.access.tokens import Tokens
from perennial.http.errors import fail, reject
from perennial.http.exchange import Exchange, Headers, Request
from perennial.settings import Settings

log = logging.getLogger("perennial.access")

SEND_ONE: Final = "send a token: Authorization: Bearer <token>"
NOT_KNOWN: Final = f"{SEND_ONE} that is known here; this one is wrong, was revoked, or has expired"
CHALLENGE: Final[Headers] = [(b"www-authenticate", b'Bearer realm="perennial"')]


def scope_of(method: str) -> str:
    """What a method on a stream or a part of one asks for."""
    return READ if method in ("GET", "HEAD") else WRITE


class Gate:
    def __init__(self, settings: Settings) -> None:
        # Fixed for the life of the server: taking the last token away must not open the doors.
        self.guarded = settings.guarded
        self._tokens, self._jwt = _credentials(settings)

    def reload(self, settings: Settings) -> None:
        """Other tokens and keys from now on. If they are no good: `SettingsError`, and nothing changes."""
        if not self.guarded:
            if settings.guarded:
                log.warning("access control was off at the start and stays off: restart to turn it on")
            return
        self._tokens, self._jwt = _credentials(settings)

    def identify(self, request: Request) -> Identity:
        """Found out once per request."""
        identity = request.identity
        if identity is None:
            identity = request.identity = self._identify(request) if self.guarded else ANYONE
        return identity

    def admit(self, exchange: Exchange) -> bool:
        """True when they are known, or nobody has to be; otherwise the request has been answered."""
        if not self.guarded or self.identify(exchange.request).known:
            return True
        is_missing = self.identify(exchange.request) is MISSING
        fail(exchange, 401, "UNAUTHORIZED", SEND_ONE if is_missing else NOT_KNOWN, CHALLENGE)
        return False

    def allow(self, exchange: Exchange, scope: str, bucket: str, stream: str) -> bool:
        """True when they may; otherwise the request has been answered."""
        if not self.guarded or self.identify(exchange.request).may(scope, bucket, stream):
            return True
        reject(exchange, BeyondScope())
        return False

    def allow_all(self, exchange: Exchange, scope: str, bucket: str) -> bool:
        """As `allow`, for what concerns a bucket as a whole."""
        if not self.guarded or self.identify(exchange.request).may_all(scope, bucket):
            return True
        reject(exchange, BeyondScope())
        return False

    def _identify(self, request: Request) -> Identity:
        sent = request.headers.get(b"authorization")
        if sent is None:
            return MISSING
        scheme, _, token = sent.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return UNKNOWN
        found = self._tokens.find(token)
        if found is None and self._jwt is not None and token.count(".") == 2:
            found = self._jwt.find(token)
        return found or UNKNOWN


def _credentials(settings: Settings) -> tuple[Tokens, JwtVerifier | None]:
    tokens = Tokens(settings.auth_tokens, settings.tokens)
    return tokens, JwtVerifier(settings) if settings.jwt_secret or settings.jwt_keys else None
