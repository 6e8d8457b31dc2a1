"""A client for what the official `durable-streams` package does not cover.

Module map:

- `proxy`        resumable HTTP responses through the proxy, blocking
- `proxy_async`  the same for asyncio
- `calls`        requests to the proxy and what its answers mean; no I/O
- `reading`      one response out of a stream's frames, and where to go on reading; no I/O
- `wire`         a small blocking HTTP client
- `errors`       everything that can go wrong
"""

from perennial.client.errors import (
    Disconnected,
    PerennialClientError,
    Refused,
    ResponseAborted,
    ResponseFailed,
    StreamEnded,
    UpstreamFailed,
    UrlExpired,
)
from perennial.client.proxy import ProxyClient, ProxyResponse, ProxySession
from perennial.client.proxy_async import AsyncProxyClient, AsyncProxyResponse, AsyncProxySession

__all__ = [
    "AsyncProxyClient",
    "AsyncProxyResponse",
    "AsyncProxySession",
    "Disconnected",
    "PerennialClientError",
    "ProxyClient",
    "ProxyResponse",
    "ProxySession",
    "Refused",
    "ResponseAborted",
    "ResponseFailed",
    "StreamEnded",
    "UpstreamFailed",
    "UrlExpired",
]
