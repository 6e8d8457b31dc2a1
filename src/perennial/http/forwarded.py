"""Who is behind a reverse proxy: `Forwarded` (RFC 7239) and `X-Forwarded-*`, from those we trust only."""

import ipaddress
import re

from perennial.http.exchange import Request
from perennial.settings import SettingsError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_PAIR = re.compile(r'\s*([A-Za-z]+)=(?:"([^"]*)"|([^\s;,"]*))\s*(?:;|$)')
_SCHEMES = ("http", "https")


class TrustedProxies:
    def __init__(self, trusted: tuple[str, ...]) -> None:
        self._unix = "unix" in trusted
        self._networks: list[Network] = []
        for text in trusted:
            if text != "unix":
                try:
                    self._networks.append(ipaddress.ip_network(text, strict=False))
                except ValueError as error:
                    raise SettingsError(f"bad setting: trusted_proxies: {error}") from error

    @property
    def any(self) -> bool:
        return self._unix or bool(self._networks)

    def apply(self, request: Request) -> None:
        """Put the client's address and scheme in place of the proxy's."""
        if not self._trusts(request.client):
            return
        hops, scheme = _read(request)
        if scheme in _SCHEMES:
            request.scheme = scheme
        # From the nearest on: each hop was added by the one after it, and counts while that one is trusted.
        for hop in reversed(hops):
            address = _address(hop)
            if address is None:
                return
            request.client = address
            if not self._trusts(address):
                return

    def _trusts(self, client: str) -> bool:
        if not client:
            return self._unix
        try:
            address = ipaddress.ip_address(client)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)


def _read(request: Request) -> tuple[list[str], str]:
    """The addresses that were forwarded, the client's first, and the scheme the client used."""
    get = request.headers.get
    forwarded = get(b"forwarded")
    if forwarded is not None:
        elements = [_parse_element(element) for element in forwarded.split(",")]
        protos = [element["proto"] for element in elements if "proto" in element]
        hops = [element.get("for", "") for element in elements]
        return hops, protos[-1].lower() if protos else ""
    hops = [hop.strip() for hop in get(b"x-forwarded-for", "").split(",") if hop.strip()]
    scheme = get(b"x-forwarded-proto", "").rpartition(",")[2].strip().lower()
    return hops, scheme


def _parse_element(text: str) -> dict[str, str]:
    return {name.lower(): quoted or token for name, quoted, token in _PAIR.findall(text)}


def _address(hop: str) -> str | None:
    """`192.0.2.1`, `192.0.2.1:4711`, `[2001:db8::1]:4711` or `2001:db8::1`; None for a made-up name."""
    if hop.startswith("["):
        hop = hop[1:].partition("]")[0]
    elif hop.count(":") == 1:
        hop = hop.partition(":")[0]
    try:
        return str(ipaddress.ip_address(hop))
    except ValueError:
        return None
