"""Requests to the proxy and what its answers mean. No I/O: both clients build on this."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perennial.client.address import server_url
from perennial.client.errors import refusal


@dataclass(frozen=True)
class Call:
    """One HTTP request to the proxy."""

    method: str
    url: str
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = b""  # bytes, or pieces of them: iterable, and for asyncio asynchronously so


@dataclass(frozen=True)
class Opened:
    """What the proxy says of a response it has begun to keep."""

    url: str
    response_id: int
    content_type: str | None


class Calls:
    """Builds requests for one proxy, with one service token."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = server_url(url)
        self._credentials = {} if token is None else {"authorization": f"Bearer {token}"}

    def forward(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | str | None = None,
        json_body: Any = None,
        authorization: str | None = None,
        ttl: int | None = None,
        onto: str | None = None,
    ) -> Call:
        """Create a stream with the upstream's response, or append it `onto` the one a signed URL names."""
        sent = {name.lower(): value for name, value in (headers or {}).items()}
        # Whoever writes `authorization` among the headers means the upstream's, as with any HTTP client.
        credentials = authorization or sent.pop("authorization", None)
        body = content.encode() if isinstance(content, str) else content or b""
        if json_body is not None:
            body = json.dumps(json_body).encode()
            sent.setdefault("content-type", "application/json")
        # Bodies are handed out as the upstream sent them, so they had better not be compressed.
        sent.setdefault("accept-encoding", "identity")
        sent |= {"upstream-url": url, "upstream-method": method.upper()}
        if credentials is not None:
            sent["upstream-authorization"] = credentials
        if onto is not None:
            sent["use-stream-url"] = onto
        return Call("POST", self._url, sent | self._ttl(ttl) | self._credentials, body)

    def connect(
        self,
        session_id: str,
        *,
        auth_url: str | None = None,
        authorization: str | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        ttl: int | None = None,
    ) -> Call:
        sent = {name.lower(): value for name, value in (headers or {}).items()} | {"session-id": session_id}
        if auth_url is not None:
            sent["upstream-url"] = auth_url
        if authorization is not None:
            sent["upstream-authorization"] = authorization
        return Call("POST", self._url, sent | self._ttl(ttl) | self._credentials, content)

    def abort(self, url: str) -> Call:
        return Call("PATCH", f"{url}&action=abort")

    def delete(self, stream_id: str) -> Call:
        return Call("DELETE", f"{self._url}/{stream_id}", dict(self._credentials))

    def _ttl(self, seconds: int | None) -> dict[str, str]:
        return {} if seconds is None else {"stream-signed-url-ttl": str(seconds)}


def opened(status: int, headers: Mapping[str, str], body: bytes) -> Opened:
    """The answer to `forward`; raises `Refused`."""
    if status not in (200, 201):
        raise refusal(status, headers, body)
    return Opened(
        headers["location"], int(headers["stream-response-id"]), headers.get("upstream-content-type")
    )


def connected(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """The answer to `connect`: the session's signed URL; raises `Refused`."""
    if status not in (200, 201):
        raise refusal(status, headers, body)
    return headers["location"]


def done(status: int, headers: Mapping[str, str], body: bytes) -> None:
    """The answer to `abort` and `delete`; raises `Refused`."""
    if status != 204:
        raise refusal(status, headers, body)


def stream_id_of(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]
