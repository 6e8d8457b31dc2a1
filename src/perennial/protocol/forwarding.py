"""Which headers pass through the proxy, and which stay on their side of it (proxy protocol, 6)."""

from collections.abc import Iterable, Mapping
from typing import Final

from perennial.protocol.frames import COOKIE_SEPARATOR

UPSTREAM_URL: Final = b"upstream-url"
UPSTREAM_METHOD: Final = b"upstream-method"
UPSTREAM_AUTHORIZATION: Final = b"upstream-authorization"
UPSTREAM_CONTENT_TYPE: Final = b"upstream-content-type"
UPSTREAM_STATUS: Final = b"upstream-status"
USE_STREAM_URL: Final = b"use-stream-url"
SESSION_ID: Final = b"session-id"
STREAM_ID: Final = b"stream-id"
STREAM_SIGNED_URL_TTL: Final = b"stream-signed-url-ttl"
STREAM_RESPONSE_ID: Final = b"stream-response-id"

METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})

# `Trailers` is what the document says, `Trailer` what RFC 9110 calls it.
HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "trailers",
        "transfer-encoding",
        "upgrade",
    }
)
PROXY_ONLY: Final = frozenset(
    {
        "upstream-url",
        "upstream-method",
        "upstream-authorization",
        "use-stream-url",
        "session-id",
        "stream-signed-url-ttl",
    }
)
# Set anew for the upstream: its own host, the credentials meant for it, the length of the body we hold.
# And we have answered an expectation ourselves, before we had that body.
_REPLACED: Final = frozenset({"host", "authorization", "content-length", "expect"})


def upstream_request_headers(
    headers: Mapping[bytes, str], stream_id: str | None = None
) -> list[tuple[str, str]]:
    """What the upstream sees of a client's request. `stream_id`: the session an auth endpoint judges."""
    withheld = HOP_BY_HOP | PROXY_ONLY | _REPLACED | _named_in(headers.get(b"connection", ""))
    if stream_id is not None:
        withheld |= {"stream-id"}
    passed = [
        (name, value)
        for raw, value in headers.items()
        if (name := raw.decode("latin-1").lower()) not in withheld
    ]
    authorization = headers.get(UPSTREAM_AUTHORIZATION)
    if authorization is not None:
        passed.append(("authorization", authorization))
    if stream_id is not None:
        passed.append(("stream-id", stream_id))
    return passed


def upstream_response_headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """What a Start frame keeps of an upstream's response: lower case, repeated headers joined."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        separator = ", "
        if name == "set-cookie":
            separator = COOKIE_SEPARATOR
            value = value.replace(COOKIE_SEPARATOR, ", ")
        headers[name] = f"{headers[name]}{separator}{value}" if name in headers else value
    withheld = HOP_BY_HOP | _named_in(headers.get("connection", ""))
    return {name: value for name, value in headers.items() if name not in withheld}


def _named_in(connection: str) -> frozenset[str]:
    """Headers that the sender's Connection header declares to be for this hop only (RFC 9110, 7.6.1)."""
    return frozenset(name.strip().lower() for name in connection.split(",") if name.strip())
