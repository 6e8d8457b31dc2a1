"""Where a server is: at an http(s) URL, or at a Unix socket as in `unix:/run/perennial.sock`. No I/O."""

from typing import Final, NamedTuple
from urllib.parse import urlsplit

# Stands for the server behind a socket in requests, which need some host: a name that nobody types by hand,
# and that leads to no other machine should a URL with it be used elsewhere.
SOCKET_ORIGIN: Final = "http://unix.localhost"

SCHEMES: Final = ("http://", "https://", "unix:")  # what the address of a server begins with


class Address(NamedTuple):
    url: str  # what the URLs of requests begin with
    socket: str | None = None  # the path to connect to, instead of a host

    def __str__(self) -> str:
        """As a person would write it."""
        return self.url if self.socket is None else f"unix:{self.socket}"

    def leads_to(self, url: str) -> bool:
        """Is this the URL of something on the server?"""
        return url == self.url or url.startswith(f"{self.url}/")


def server_address(url: str) -> Address:
    """Raises `ValueError` if it is none: it would fail in strange ways later."""
    scheme, _, path = url.partition(":")
    if scheme.lower() == "unix":
        return _socket_address(url, path)
    try:
        return Address(server_url(url))
    except ValueError as error:
        raise ValueError(f"{error} or unix:/run/perennial.sock") from None


def server_url(url: str) -> str:
    """Without a slash at its end. Raises `ValueError` if it is none."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is none
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_one = False
    if not is_one:
        raise ValueError(f"{url!r} is not the URL of a server, which looks like http://127.0.0.1:4437")
    return url.rstrip("/")


def _socket_address(url: str, path: str) -> Address:
    if path.startswith("//"):
        path = path.removeprefix("//")
        if path and not path.startswith("/"):
            raise ValueError(f"{url!r} is no path: write unix:{path} for one from here, or unix:///{path}")
    if not path or "\0" in path:
        raise ValueError(f"{url!r} names no socket, as unix:/run/perennial.sock does")
    return Address(SOCKET_ORIGIN, path)
