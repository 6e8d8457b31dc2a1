"""Which upstreams may be asked: URL patterns, matched on a URL that has only one reading (proxy protocol, 7).

A URL is first brought to one normal form, or refused if two programs could read it differently. The normal
form is what patterns are matched with, and it is also what the request is sent to, so there is no gap between
what was judged and what is fetched.

Patterns look like URLs: `https://api.example.com/v1/**`.

| part   | in a pattern                                                                                    |
| ------ | ----------------------------------------------------------------------------------------------- |
| scheme | `http`, `https`, or `*` for both                                                                |
| host   | `*` stands for letters within one label, `**` for any number of labels                          |
| port   | a number, or `*` for any; left out: the scheme's own (80, 443)                                  |
| path   | `*` stands for characters within one segment, `**` for any number of segments; left out: every  |

A query is passed on and plays no part in the match.
"""

import ipaddress
import re
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from perennial.proxy.errors import UpstreamNotAllowed
from perennial.settings import SettingsError

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

# RFC 3986, appendix B, with what we never accept left out: no scheme, no authority.
_URL = re.compile(
    r"(?P<scheme>[A-Za-z*]+)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<query>\?[^#]*)?(?:#.*)?"
)
_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::(?P<port>[0-9]{1,5}|\*))?")
_HOST = re.compile(r"(?!-)[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class UpstreamUrl(msgspec.Struct, frozen=True):
    """An upstream's address in its one normal form."""

    scheme: str
    host: str
    port: int
    path: str
    query: str = ""

    def __str__(self) -> str:
        """To send the request to. Not for logs: a query may hold credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}{self.query}"

    def __repr__(self) -> str:
        return f"UpstreamUrl({self.scheme}://{self.host}:{self.port})"


class Allowlist:
    """Without patterns nothing is allowed."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._patterns = [_Pattern(pattern) for pattern in patterns]

    def admit(self, url: str) -> UpstreamUrl:
        """The URL in its normal form; raises `UpstreamNotAllowed`."""
        upstream = parse_upstream_url(url)
        if not any(pattern.matches(upstream) for pattern in self._patterns):
            raise UpstreamNotAllowed("Upstream-URL matches no pattern of this server's allowlist")
        return upstream


def parse_upstream_url(url: str) -> UpstreamUrl:
    """Raises `UpstreamNotAllowed` for whatever is not plainly one absolute HTTP URL."""
    if not url.isascii() or any(character <= " " or character in '\\"<>^`{|}\x7f' for character in url):
        raise UpstreamNotAllowed("Upstream-URL contains characters that a URL must percent-encode")
    parts = _URL.fullmatch(url)
    if parts is None or parts["scheme"].lower() not in DEFAULT_PORTS:
        raise UpstreamNotAllowed("Upstream-URL must be an absolute http:// or https:// URL")
    scheme = parts["scheme"].lower()
    if "@" in parts["authority"]:
        raise UpstreamNotAllowed("Upstream-URL must not contain a user name; use Upstream-Authorization")
    authority = _AUTHORITY.fullmatch(parts["authority"])
    if authority is None or authority["port"] == "*":
        raise UpstreamNotAllowed("Upstream-URL has a malformed host or port")
    port = int(authority["port"] or DEFAULT_PORTS[scheme])
    if not 0 < port < 65536:
        raise UpstreamNotAllowed("Upstream-URL has a port out of range")
    return UpstreamUrl(
        scheme, _normal_host(authority["host"]), port, _normal_path(parts["path"]), parts["query"] or ""
    )


def _normal_host(host: str) -> str:
    """Lower case, without the final dot of a rooted name. An address has exactly one spelling."""
    if host.startswith("["):
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            raise UpstreamNotAllowed("Upstream-URL has a malformed IPv6 address") from None
    name = host.lower().removesuffix(".")
    if _HOST.fullmatch(name) is None:
        raise UpstreamNotAllowed("Upstream-URL has a malformed host; write international names in punycode")
    if _NUMERIC_LABEL.fullmatch(name.rpartition(".")[2]):
        # 127.1, 0x7f000001, 2130706433 and 0177.0.0.1 are all loopback to one library or another.
        try:
            return str(ipaddress.IPv4Address(name))
        except ValueError:
            raise UpstreamNotAllowed("Upstream-URL must spell an IPv4 address as four decimals") from None
    return name


def _normal_path(path: str) -> str:
    """Without dot segments or needless escapes (RFC 3986, 6.2.2)."""
    if "%" in path:
        if len(_ESCAPE.findall(path)) != path.count("%"):
            raise UpstreamNotAllowed("Upstream-URL has a malformed percent-encoding")
        _refuse_hidden_structure(path)
        path = _ESCAPE.sub(_unescape_if_plain, path)
    kept: list[str] = []
    segments = (path or "/").split("/")[1:]
    for segment in segments:
        if segment == "..":
            if kept:
                kept.pop()
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)


def _unescape_if_plain(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    return character if character in _UNRESERVED else escape[0].upper()


def _refuse_hidden_structure(path: str) -> None:
    """Some servers decode before they split, some decode twice: both must see the segments we see."""
    data = path.encode()
    depth = data.count(b"/")
    rounds = 0
    while (decoded := unquote_to_bytes(data)) != data:
        data = decoded
        rounds += 1
        if data.count(b"/") != depth or b"\\" in data or min(data) < 0x20:
            raise UpstreamNotAllowed("Upstream-URL hides a slash or a control character in its path")
        if rounds > 1 and any(segment in (b".", b"..") for segment in data.split(b"/")):
            raise UpstreamNotAllowed("Upstream-URL hides a dot segment in its path")


class _Pattern:
    """One line of the allowlist."""

    def __init__(self, text: str) -> None:
        parts = _URL.fullmatch(text)
        authority = None if parts is None else _AUTHORITY.fullmatch(parts["authority"])
        if parts is None or authority is None or parts["query"] is not None or "#" in text:
            raise _bad_pattern(text, "expected something like https://api.example.com/v1/**")
        scheme, host, path = parts["scheme"].lower(), authority["host"].lower(), parts["path"]
        if scheme not in ("http", "https", "*"):
            raise _bad_pattern(text, "the scheme must be http, https or *")
        if host.startswith("["):
            host = str(ipaddress.IPv6Address(host[1:-1]))
        elif re.fullmatch(r"[a-z0-9_.*-]+", host) is None:
            raise _bad_pattern(text, "the host may have letters, digits, '-', '_', '.' and '*'")
        self._schemes = ("http", "https") if scheme == "*" else (scheme,)
        self._port = authority["port"]
        self._host = re.compile(_glob(host.removesuffix("."), r"\."))
        try:
            self._path = re.compile(_glob(_normal_path(path) if path else "/**", "/"))
        except UpstreamNotAllowed as error:
            raise _bad_pattern(text, str(error)) from error

    def matches(self, url: UpstreamUrl) -> bool:
        port = url.port
        return (
            url.scheme in self._schemes
            and (self._port == "*" or port == int(self._port or DEFAULT_PORTS[url.scheme]))
            and self._host.fullmatch(url.host) is not None
            and self._path.fullmatch(url.path) is not None
        )


def _glob(pattern: str, separator: str) -> str:
    """A regular expression. `separator` is escaped: a dot for hosts, a slash for paths."""
    within = f"[^{separator}]*"
    whole = ""
    for part in re.split(r"(/\*\*/|\*\*|\*)", pattern):
        if part == "/**/":
            whole += "/(?:.*/)?"
        elif part == "**":
            whole += ".*" if separator == "/" else ".+"
        elif part == "*":
            whole += within if separator == "/" else within[:-1] + "+"
        else:
            whole += re.escape(part)
    return whole


def _bad_pattern(text: str, reason: str) -> SettingsError:
    return SettingsError(f"PERENNIAL_PROXY_ALLOW: {text!r} is not a URL pattern: {reason}")
