"""Taking an address, before anything is served there. Nobody can connect until someone listens on it."""

import errno
import os
import socket
import stat
from contextlib import suppress
from typing import Any, Final

# How much may lie unsent in the kernel for one peer. The default runs to megabytes, which would hide a slow
# reader from us (its buffer space frees up in steps of many seconds) and cost as much for each of them.
UNSENT_BYTES: Final = 128 * 1024


def bind(host: str, port: int, path: str | os.PathLike[str] | None = None) -> list[socket.socket]:
    """One socket for every address of `host`, or one at the path of a Unix socket."""
    if path is not None:
        return [_bind_path(os.fspath(path))]
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((entry[0], entry[4]) for entry in found):
            bound.append(_bind_address(family, address))
    except OSError:
        close(bound)
        raise
    return bound


def close(sockets: list[socket.socket]) -> None:
    for bound in sockets:
        bound.close()


def _bind_address(family: int, address: Any) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Accepted sockets inherit it.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def _bind_path(path: str) -> socket.socket:
    """What a server left behind when it was killed is taken over; what one still listens on is not."""
    if _is_left_behind(path):
        with suppress(FileNotFoundError):
            os.unlink(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        bound.bind(path)
    except OSError:
        bound.close()
        raise
    return bound


def _is_left_behind(path: str) -> bool:
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return False
    except OSError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(path) == errno.ECONNREFUSED
