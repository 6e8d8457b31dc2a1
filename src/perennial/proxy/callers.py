"""How many upstream responses one caller may have in flight (proxy protocol, 13.1)."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from perennial.proxy.errors import TooManyUpstreams


class Place:
    """One upstream connection of a caller, from the request to the end of its body."""

    __slots__ = ("_callers", "_name")

    def __init__(self, callers: "Callers", name: str) -> None:
        self._callers: Callers | None = callers
        self._name = name

    def leave(self) -> None:
        if self._callers is not None:
            self._callers.left(self._name)
            self._callers = None


class Callers:
    """A caller is a service token, or an address where there are no tokens."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._active: Counter[str] = Counter()

    def enter(self, name: str) -> Place:
        if self._active[name] >= self._limit:
            raise TooManyUpstreams(
                f"{self._limit} upstream responses are in flight, as many as you may have; wait for one"
            )
        self._active[name] += 1
        return Place(self, name)

    @contextmanager
    def visit(self, name: str) -> Iterator[None]:
        place = self.enter(name)
        try:
            yield
        finally:
            place.leave()

    def left(self, name: str) -> None:
        self._active[name] -= 1
        if not self._active[name]:
            del self._active[name]
