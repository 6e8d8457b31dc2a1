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
        told = _read(request)
        clients = {self._follow(request.client, hops) for hops, _ in told}
        if len(clients) > 1:
            return  # Most proxies write one kind of header and pass the other on as the client made it up.
        request.client = clients.pop() if clients else request.client
        request.scheme = next((scheme for _, scheme in told if scheme in _SCHEMES), request.scheme)

    def _follow(self, client: str, hops: list[str]) -> str:
        """From the nearest on: a hop was added by the one after it, and counts while that one is trusted."""
        for hop in reversed(hops):
            address = _address(hop)
            if address is None:
                break
            client = address
            if not self._trusts(client):
                break
        return client

    def _trusts(self, client: str) -> bool:
        if not client:
            return self._unix
        try:
            address = ipaddress.ip_address(client)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)


def _read(request: Request) -> list[tuple[list[str], str]]:
    """Of each kind of header: the addresses it tells, the client's first, and the client's scheme."""
    get = request.headers.get
    told: list[tuple[list[str], str]] = []
    forwarded = get(b"forwarded")
    if forwarded is not None:
        elements = [_parse_element(element) for element in forwarded.split(",")]
        protos = [element["proto"] for element in elements if "proto" in element]
        told.append(([element.get("for", "") for element in elements], protos[-1].lower() if protos else ""))
    addresses, scheme = get(b"x-forwarded-for"), get(b"x-forwarded-proto")
    if addresses is not None or scheme is not None:
        hops = [hop.strip() for hop in (addresses or "").split(",") if hop.strip()]
        told.append((hops, (scheme or "").rpartition(",")[2].strip().lower()))
    return told


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
