"""Why the proxy did not do what it was asked. `http/proxy.py` gives each its status and code.

ProxyError
├── UpstreamNotAllowed   the allowlist, or the address the name led to
├── UpstreamRefused      the upstream answered, but not with 2xx
│   └── Redirected       it pointed elsewhere, where we do not follow
├── UpstreamUnreachable  no answer could be had
├── UpstreamTimeout      no answer came in time
├── ConnectRejected      the auth endpoint said no
├── TooManyUpstreams     the caller has as many responses in flight as it may
├── StorageFailed        the disk did not take it
├── NoSuchStream, StreamIsClosed
└── Stopping             the server is going away

Messages reach clients and logs: none may contain a URL's query, a header's value or a signature.
"""

from perennial.protocol.frames import Failure


class ProxyError(Exception):
    """Base of the family; never raised itself."""


class UpstreamNotAllowed(ProxyError):
    pass


class UpstreamRefused(ProxyError):
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__(f"the upstream answered {status}")
        self.status = status
        self.headers = headers
        self.body = body


class Redirected(UpstreamRefused):
    pass


class UpstreamUnreachable(ProxyError):
    pass


class UpstreamTimeout(ProxyError):
    pass


class ConnectRejected(ProxyError):
    pass


class TooManyUpstreams(ProxyError):
    pass


class StorageFailed(ProxyError):
    pass


class NoSuchStream(ProxyError):
    pass


class StreamIsClosed(ProxyError):
    pass


class Stopping(ProxyError):
    pass


class ResponseBroken(Exception):
    """A response that had begun well cannot be completed; becomes its Error frame."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(code, message)
