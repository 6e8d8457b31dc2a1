"""Rate limits: how fast one identity may be, in requests and in bytes per second.

A bucket of tokens each, full at one second's worth. Bytes are paid afterwards, when their number is known:
a large body or read takes the bucket below zero, and the next request waits until it is full of debt no more.
"""

import ipaddress
import math
from functools import lru_cache
from time import monotonic
from typing import Final

# Beyond this many, those that have been quiet and owe nothing are forgotten.
REMEMBERED: Final = 50_000


class Allowance:
    __slots__ = ("at", "bytes", "requests")

    def __init__(self, requests: float, size: float, now: float) -> None:
        self.requests = requests
        self.bytes = size
        self.at = now


class Rates:
    def __init__(self, requests_per_second: float, bytes_per_second: float) -> None:
        self._requests = requests_per_second or math.inf
        self._bytes = bytes_per_second or math.inf
        # A rate below one a second still lets one through when it is due.
        self._burst = max(1.0, self._requests)
        self._known: dict[str, Allowance] = {}
        self.throttled = 0

    @property
    def limited(self) -> bool:
        return not (math.isinf(self._requests) and math.isinf(self._bytes))

    @property
    def counts_bytes(self) -> bool:
        return not math.isinf(self._bytes)

    def admit(self, name: str, now: float | None = None) -> float:
        """0 and one request is taken from the allowance, or the seconds until there is one."""
        allowance = self._refill(name, monotonic() if now is None else now)
        wait = 0.0
        if allowance.requests < 1:
            wait = (1 - allowance.requests) / self._requests
        if allowance.bytes <= 0:
            wait = max(wait, -allowance.bytes / self._bytes, 0.001)
        if wait:
            self.throttled += 1
        else:
            allowance.requests -= 1
        return wait

    def charge(self, name: str, size: int) -> None:
        """Bytes that were sent or received after all."""
        allowance = self._known.get(name)
        if allowance is not None:
            allowance.bytes -= size

    def _refill(self, name: str, now: float) -> Allowance:
        allowance = self._known.get(name)
        if allowance is None:
            if len(self._known) >= REMEMBERED:
                self._forget_idle(now)
            allowance = self._known[name] = Allowance(self._burst, self._bytes, now)
            return allowance
        passed = max(0.0, now - allowance.at)
        allowance.at = now
        allowance.requests = min(self._burst, allowance.requests + passed * self._requests)
        allowance.bytes = min(self._bytes, allowance.bytes + passed * self._bytes)
        return allowance

    def _forget_idle(self, now: float) -> None:
        for name, known in list(self._known.items()):
            passed = now - known.at
            refilled = known.requests + passed * self._requests >= self._burst
            if refilled and known.bytes + passed * self._bytes >= self._bytes:
                del self._known[name]
        while len(self._known) >= REMEMBERED:
            del self._known[next(iter(self._known))]


@lru_cache(maxsize=4096)
def address_name(client: str) -> str:
    """Whom an address stands for: one IPv4 address, or the IPv6 network that one subscriber has."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return f"address:{client}"
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        if mapped is None:
            return f"address:{ipaddress.ip_network((address, 64), strict=False)}"
        address = mapped
    return f"address:{address}"
