"""Bearer JWTs (RFC 7519): HS256, RS256 and EdDSA, with the same scopes as tokens have, as claims.

    {"sub": "alice", "exp": 1767225600, "scope": "read write", "buckets": ["agents"], "prefix": "alice/"}

A key verifies one algorithm, the one its type is for, whatever a token's header asks for: a public key is
never taken for a shared secret. `exp` is required. The libraries are loaded only when JWTs are configured.
"""

import hashlib
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final

import msgspec

from perennial.http.access.identity import SCOPES, Identity
from perennial.settings import Settings, SettingsError

ALGORITHMS: Final = ("HS256", "RS256", "EdDSA")
SECRET_BYTES: Final = 32
LEEWAY_SECONDS: Final = 30
# Verifying costs as much as several appends, and a client sends the same token again and again.
REMEMBERED: Final = 4096


class Key(msgspec.Struct, frozen=True):
    id: str | None
    algorithm: str
    material: Any


class Claims(msgspec.Struct, frozen=True):
    """What we read of a token's claims; of the wrong type, they make the token worthless."""

    exp: float
    sub: str = ""
    scope: str | tuple[str, ...] = ()
    buckets: tuple[str, ...] | None = None
    prefix: str = ""


class JwtVerifier:
    def __init__(self, settings: Settings) -> None:
        self._keys = load_keys(settings)
        self._audience = settings.jwt_audience or None
        self._issuer = settings.jwt_issuer or None
        self._remembered: OrderedDict[bytes, tuple[Identity, float]] = OrderedDict()

    def find(self, token: str) -> Identity | None:
        fingerprint = hashlib.sha256(token.encode("latin-1", "replace")).digest()
        remembered = self._remembered.get(fingerprint)
        if remembered is not None:
            identity, expires_at = remembered
            if time.time() < expires_at:
                self._remembered.move_to_end(fingerprint)
                return identity
            del self._remembered[fingerprint]
        claims = self._verify(token)
        if claims is None:
            return None
        identity = _identity(claims, fingerprint)
        self._remembered[fingerprint] = identity, claims.exp + LEEWAY_SECONDS
        if len(self._remembered) > REMEMBERED:
            self._remembered.popitem(last=False)
        return identity

    def _verify(self, token: str) -> Claims | None:
        import jwt

        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            return None
        for key in self._keys:
            fits = key.id is None or header.get("kid") in (None, key.id)
            if not fits or header.get("alg") != key.algorithm:
                continue
            try:
                payload = jwt.decode(
                    token,
                    key.material,
                    algorithms=[key.algorithm],
                    audience=self._audience,
                    issuer=self._issuer,
                    leeway=LEEWAY_SECONDS,
                    options={"require": ["exp"], "verify_aud": self._audience is not None},
                )
                return msgspec.convert(payload, Claims)
            except (jwt.PyJWTError, msgspec.ValidationError):
                continue
        return None


def _identity(claims: Claims, fingerprint: bytes) -> Identity:
    scopes = claims.scope.split() if isinstance(claims.scope, str) else claims.scope
    # Identity providers put scopes of other services in as well.
    ours = SCOPES.intersection(scopes)
    return Identity(f"jwt:{claims.sub or fingerprint.hex()[:16]}", ours, claims.buckets, claims.prefix)


def load_keys(settings: Settings) -> list[Key]:
    try:
        import jwt  # noqa: F401
    except ImportError as error:  # pragma: no cover
        raise SettingsError("JWTs need the packages PyJWT and cryptography") from error
    keys: list[Key] = []
    if settings.jwt_secret:
        secret = settings.jwt_secret.encode()
        if len(secret) < SECRET_BYTES:
            raise SettingsError(f"jwt_secret must have at least {SECRET_BYTES} bytes")
        keys.append(Key(None, "HS256", secret))
    if settings.jwt_keys:
        path = Path(settings.jwt_keys)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise SettingsError(f"cannot read jwt_keys {path}: {error.strerror}") from error
        found = _from_jwks(content) if content.lstrip().startswith(b"{") else _from_pem(content)
        if not found:
            wanted = ", ".join(ALGORITHMS)
            raise SettingsError(f"jwt_keys {path} holds no key for {wanted}: expected PEM or a JWKS")
        keys += found
    return keys


def _from_pem(content: bytes) -> list[Key]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(content)
    except ValueError:
        return []
    if isinstance(key, RSAPublicKey):
        return [Key(None, "RS256", key)]
    return [Key(None, "EdDSA", key)] if isinstance(key, Ed25519PublicKey) else []


def _from_jwks(content: bytes) -> list[Key]:
    from jwt import PyJWKSet, PyJWTError

    try:
        jwks = PyJWKSet.from_json(content.decode())
    except (PyJWTError, ValueError):
        return []
    return [
        Key(key.key_id, key.algorithm_name, key.key)
        for key in jwks.keys
        if key.algorithm_name in ALGORITHMS and key.public_key_use in (None, "sig")
    ]
