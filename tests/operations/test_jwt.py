"""Bearer JWTs: three algorithms, keys from a secret, a PEM file or a JWKS, and every way to be worthless."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import OKPAlgorithm, RSAAlgorithm

from tests.operations.servers import TEXT, OperatedServer

SECRET = "a shared secret of more than 32 bytes"
RSA = generate_private_key(public_exponent=65537, key_size=2048)
ED = Ed25519PrivateKey.generate()


def claims(**more: Any) -> dict[str, Any]:
    return {"sub": "alice", "exp": int(time.time()) + 300, "scope": "openid read write", **more}


def pem(key: Any) -> str:
    encoded: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return encoded.decode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedServer]:
    directory = tmp_path_factory.mktemp("jwt")
    keys = [
        {**json.loads(RSAAlgorithm.to_jwk(RSA.public_key())), "kid": "rsa", "alg": "RS256", "use": "sig"},
        {**json.loads(OKPAlgorithm.to_jwk(ED.public_key())), "kid": "ed", "alg": "EdDSA"},
    ]
    (directory / "keys.json").write_text(json.dumps({"keys": keys}))
    config = f'jwt_secret = "{SECRET}"\njwt_keys = "{directory}/keys.json"\njwt_issuer = "https://issuer"\n'
    with OperatedServer(directory, config) as running:
        yield running


def status(server: OperatedServer, token: str, method: str = "GET", path: str = "/v1/stream/x") -> int:
    with server.client(token) as client:
        return client.request(method, path, headers=TEXT if method == "PUT" else {}).status_code


def issued(**more: Any) -> dict[str, Any]:
    return claims(iss="https://issuer", **more)


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(SECRET, "HS256", None), (RSA, "RS256", "rsa"), (RSA, "RS256", None), (ED, "EdDSA", "ed")],
)
def test_each_algorithm_is_understood(
    server: OperatedServer, key: Any, algorithm: str, kid: str | None
) -> None:
    token = jwt.encode(issued(), key, algorithm, headers={"kid": kid} if kid else None)
    assert status(server, token) == 404
    assert status(server, token) == 404, "and again, from memory"
    assert status(server, token, "PUT", "/ds/a-bucket") == 403, "admin is not among its scopes"


def test_claims_limit_like_scoped_tokens_do(server: OperatedServer) -> None:
    narrow = jwt.encode(issued(scope=["read"], buckets=["default"], prefix="x"), SECRET, "HS256")
    assert status(server, narrow) == 404
    assert status(server, narrow, path="/v1/stream/y") == 403
    assert status(server, narrow, path="/ds/other-bucket/x") == 403
    assert status(server, narrow, "PUT") == 403
    assert status(server, jwt.encode(issued(scope=""), SECRET, "HS256")) == 403


def forged_with_a_public_key() -> str:
    """A token 'signed' with the text of the public key as if it were a shared secret."""

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    signed = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(issued())}"
    signature = hmac.digest(pem(RSA).encode(), signed.encode(), hashlib.sha256)
    return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


@pytest.mark.parametrize(
    "token",
    [
        jwt.encode(issued(), "another secret of more than 32 bytes!", "HS256"),
        jwt.encode(issued(), SECRET * 2, "HS512"),
        jwt.encode(issued(), "", "none"),
        jwt.encode(issued(exp=int(time.time()) - 60), SECRET, "HS256"),
        jwt.encode(issued(nbf=int(time.time()) + 600), SECRET, "HS256"),
        jwt.encode({"sub": "alice", "iss": "https://issuer", "scope": "read"}, SECRET, "HS256"),
        jwt.encode(claims(iss="https://elsewhere"), SECRET, "HS256"),
        jwt.encode(claims(), SECRET, "HS256"),
        jwt.encode(issued(buckets="agents"), SECRET, "HS256"),
        jwt.encode(issued(prefix=["a"]), SECRET, "HS256"),
        jwt.encode(issued(), generate_private_key(65537, 2048), "RS256", headers={"kid": "rsa"}),
        jwt.encode(issued(), ED, "EdDSA", headers={"kid": "rsa"}),
        forged_with_a_public_key(),
        "..",
        "a.b.c",
    ],
    ids=[
        "other secret",
        "other algorithm",
        "no algorithm",
        "expired",
        "not yet valid",
        "without expiry",
        "other issuer",
        "no issuer",
        "buckets of a wrong type",
        "prefix of a wrong type",
        "other key",
        "key id of another key",
        "public key as a secret",
        "empty",
        "no JSON",
    ],
)
def test_a_worthless_token_is_unknown(server: OperatedServer, token: str) -> None:
    assert status(server, token) == 401


def test_a_pem_key_and_an_audience(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text(pem(ED))
    config = f'jwt_keys = "{tmp_path}/key.pem"\njwt_audience = "streams"\n'
    with OperatedServer(tmp_path, config) as server:
        assert status(server, jwt.encode(claims(aud="streams"), ED, "EdDSA")) == 404
        assert status(server, jwt.encode(claims(aud="other"), ED, "EdDSA")) == 401
        assert status(server, jwt.encode(claims(), ED, "EdDSA")) == 401
        other = Ed25519PrivateKey.generate()
        (tmp_path / "key.pem").write_text(pem(other))
        server.hang_up("reloaded")
        assert status(server, jwt.encode(claims(aud="streams"), other, "EdDSA")) == 404
        assert status(server, jwt.encode(claims(aud="streams"), ED, "EdDSA")) == 401


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="jwt_secret must have at least 32 bytes"):
        OperatedServer(tmp_path, 'jwt_secret = "short"').start()
