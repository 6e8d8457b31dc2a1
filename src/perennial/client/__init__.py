"""A client for what the official `durable-streams` package does not cover.

Module map:

- `client`         buckets, snapshots, bootstrap and feeds, blocking
- `client_async`   the same for asyncio
- `requests`       requests for these and what the answers mean; no I/O
- `tailing`        following a stream over SSE or long-poll; no I/O
- `bootstrapping`  snapshot and messages out of a bootstrap, `multipart` its parts; no I/O
- `feeds`          positions and pages of a feed; no I/O
- `messages`       the values that are handed out
- `patience`       how long to keep trying
- `proxy`          resumable HTTP responses through the proxy, blocking
- `proxy_async`    the same for asyncio
- `calls`          requests to the proxy and what its answers mean; no I/O
- `reading`        one response out of a stream's frames, and where to go on reading; no I/O
- `address`        where a server is: a URL or a Unix socket; no I/O
- `wire`           a small blocking HTTP client
- `errors`         everything that can go wrong
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from perennial.client.client import Bootstrap, Client, Feed, OpenSnapshot
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
from perennial.client.messages import BucketInfo, FeedRange, Message, Snapshot, StreamInfo
from perennial.client.proxy import ProxyClient, ProxyResponse, ProxySession

if TYPE_CHECKING:
    from perennial.client.client_async import AsyncBootstrap, AsyncClient, AsyncFeed, AsyncOpenSnapshot
    from perennial.client.proxy_async import AsyncProxyClient, AsyncProxyResponse, AsyncProxySession

__all__ = [
    "AsyncBootstrap",
    "AsyncClient",
    "AsyncFeed",
    "AsyncOpenSnapshot",
    "AsyncProxyClient",
    "AsyncProxyResponse",
    "AsyncProxySession",
    "Bootstrap",
    "BucketInfo",
    "Client",
    "Disconnected",
    "Feed",
    "FeedRange",
    "Message",
    "OpenSnapshot",
    "PerennialClientError",
    "ProxyClient",
    "ProxyResponse",
    "ProxySession",
    "Refused",
    "ResponseAborted",
    "ResponseFailed",
    "Snapshot",
    "StreamEnded",
    "StreamInfo",
    "UpstreamFailed",
    "UrlExpired",
]


def __getattr__(name: str) -> Any:
    # With the first use: their HTTP library takes longer to load than most commands take to run.
    if name in __all__:
        module = "proxy_async" if name.startswith("AsyncProxy") else "client_async"
        return getattr(import_module(f"perennial.client.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
