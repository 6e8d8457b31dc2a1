"""Query parameters: each at most once, unknown ones ignored."""

from urllib.parse import parse_qsl

from perennial.protocol.rejections import Malformed


def parse_query(query: bytes, *known: str) -> dict[str, str] | Malformed:
    """The known parameters that are present. Bytes that are not UTF-8 become characters no value allows."""
    found: dict[str, str] = {}
    if not query:
        return found
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name in known:
            if name in found:
                return Malformed(f"the query parameter {name!r} is given more than once")
            found[name] = value
    return found
