"""The address that is connected to, whatever name led there (section 13.1)."""

import asyncio
import socket

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from perennial.proxy.allowlist import parse_upstream_url
from perennial.proxy.errors import UpstreamNotAllowed, UpstreamUnreachable
from perennial.proxy.guard import Guard
from perennial.proxy.upstream import Upstreams
from tests.upstream import Reply, Upstream

PRIVATE = [
    "127.0.0.1",
    "127.8.9.1",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "0.1.2.3",
    "192.0.0.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fc00::1",
    "fd12:3456::1",
    "fe80::1",
    "fe80::1%eth0",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2001:0:0:0:0:0:80ff:fffe",
    "2001:db8::1",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_of_the_inside_are_refused(address: str) -> None:
    """13.1: blocking private/internal ranges (RFC 1918, link-local, loopback), in every spelling there is."""
    assert not Guard(allow_private=False).permits(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_addresses_of_the_outside_are_fine(address: str) -> None:
    assert Guard(allow_private=False).permits(address)


def test_private_ones_can_be_allowed_but_never_nonsense() -> None:
    guard = Guard(allow_private=True)
    assert all(guard.permits(each) for each in ("127.0.0.1", "10.0.0.1", "169.254.1.1", "::1", "fe80::1"))
    assert not any(guard.permits(each) for each in ("0.0.0.0", "::", "224.0.0.1", "ff02::1"))


class TwoFacedResolver(AbstractResolver):
    """Gives a harmless address when asked first, and another ever after: DNS rebinding."""

    def __init__(self, *answers: str) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked += 1
        address = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
        ]

    async def close(self) -> None:
        pass


def ask(resolver: AbstractResolver, url: str, times: int = 1) -> list[Exception | int]:
    async def run() -> list[Exception | int]:
        upstreams = Upstreams(Guard(allow_private=False), 0.5, resolver)
        outcomes: list[Exception | int] = []
        try:
            for _ in range(times):
                try:
                    outcomes.append((await upstreams.ask("GET", parse_upstream_url(url), [], b"")).status)
                except Exception as error:
                    outcomes.append(error)
                upstreams._session.connector.clear_dns_cache()  # type: ignore[union-attr]
        finally:
            await upstreams.close()
        return outcomes

    return asyncio.run(run())


def test_dns_rebinding_fails(upstream: Upstream) -> None:
    """13.1: DNS rebinding protections: the check is on the address actually connected to."""
    upstream.on("/rebound", Reply([b"secret"]))
    resolver = TwoFacedResolver("192.0.2.1", "127.0.0.1")
    outcomes = ask(resolver, f"http://rebind.example:{upstream.port}/rebound", times=3)
    assert resolver.asked == 3
    assert all(isinstance(outcome, UpstreamNotAllowed) for outcome in outcomes)  # 192.0.2.1 is reserved, too
    assert upstream.requests("/rebound") == []


def test_literal_addresses_are_checked_too(upstream: Upstream) -> None:
    resolver = TwoFacedResolver("1.1.1.1")
    [outcome] = ask(resolver, f"http://127.0.0.1:{upstream.port}/rebound")
    assert isinstance(outcome, UpstreamNotAllowed)
    assert resolver.asked == 0


def test_names_that_lead_nowhere_are_unreachable() -> None:
    class Nowhere(TwoFacedResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            raise OSError("no such name: secret-part-of-the-name.example")

    [outcome] = ask(Nowhere("1.1.1.1"), "http://nowhere.example/x?key=secret")
    assert isinstance(outcome, UpstreamUnreachable)
    assert "secret" not in str(outcome)
