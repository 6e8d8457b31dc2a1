"""No request goes to an address that outsiders have no business with, whatever name led there.

The check stands where a socket is made for one resolved address, just before it connects. A name that
resolves to a public address when asked first and to a private one when asked again gains nothing: what is
checked is what is connected to.
"""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

_NAT64: Final = int(IPv6Address("64:ff9b::")) >> 32


class AddressRefused(OSError):
    """The name led to an address that is not allowed."""


class Guard:
    """Judges addresses. With `allow_private`, loopback, private and link-local ones are fine too."""

    def __init__(self, allow_private: bool) -> None:
        self._allow_private = allow_private

    def permits(self, address: str) -> bool:
        ip = _innermost(ip_address(address.partition("%")[0]))  # without the zone of a link-local address
        if ip.is_multicast or ip.is_unspecified:
            return False
        return self._allow_private or ip.is_global

    def make_socket(self, info: tuple[Any, ...]) -> socket.socket:
        """For aiohttp: called with the address about to be connected to."""
        family, kind, protocol, _, address = info
        if not self.permits(address[0]):
            raise AddressRefused("private, loopback and link-local addresses are not allowed as upstreams")
        return socket.socket(family, kind, protocol)


def _innermost(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 one stands for, in any of the ways there are."""
    if isinstance(ip, IPv4Address):
        return ip
    if ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    if ip.sixtofour is not None:
        return ip.sixtofour
    if ip.teredo is not None:
        return ip.teredo[1]
    number = int(ip)
    if number >> 32 in (0, _NAT64) and number > 1:
        return IPv4Address(number & 0xFFFFFFFF)
    return ip
