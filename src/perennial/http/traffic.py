"""Counts of requests by surface, method and status. One dictionary step per request: always on."""

from collections.abc import Iterator
from typing import Final

from perennial.http.exchange import Request

SURFACES: Final = ("stream", "bucket", "snapshot", "feed", "proxy", "operations", "other")
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")


class Tally(dict[int, int]):
    """Answers by status, for one surface and method."""

    def __missing__(self, status: int) -> int:
        return 0


class Traffic:
    """Who answers an exchange gives its request a tally; the exchange counts itself when it answers."""

    def __init__(self) -> None:
        self._by_surface = {surface: {method: Tally() for method in METHODS} for surface in SURFACES}
        # Peers may invent methods; their names are not worth remembering.
        self._strange = {surface: Tally() for surface in SURFACES}

    def tally(self, request: Request) -> Tally:
        surface = surface_of(request.path)
        found = self._by_surface[surface].get(request.method)
        return self._strange[surface] if found is None else found

    def by_method(self, surface: str) -> dict[str, Tally]:
        """For a surface that is asked for all the time."""
        return self._by_surface[surface]

    def __iter__(self) -> Iterator[tuple[str, str, int, int]]:
        """(surface, method, status, count)"""
        for surface in SURFACES:
            tallies = [*self._by_surface[surface].items(), ("other", self._strange[surface])]
            for method, tally in tallies:
                for status, count in sorted(tally.items()):
                    yield surface, method, status, count


def surface_of(path: bytes) -> str:
    """By the first letters of the path as sent; one in disguise is counted as `other`."""
    if path.startswith(b"/v1/stream/"):
        return "stream"
    if path.startswith(b"/ds/"):
        parts = path.split(b"/", 5)
        if len(parts) < 4 or parts[3] == b"streams":
            return "bucket"
        return "stream" if len(parts) == 4 else "snapshot"
    if path.startswith(b"/v1/feed/"):
        return "feed"
    if path.startswith(b"/v1/proxy"):
        return "proxy"
    return "operations" if path in (b"/healthz", b"/readyz", b"/metrics") else "other"
