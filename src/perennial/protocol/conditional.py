"""ETags, If-None-Match and Cache-Control for catch-up reads (base protocol, 8.1)."""

import re
from typing import Final

NO_STORE: Final = "no-store"
SHARED_MAX_AGE_SECONDS: Final = 60

_ENTITY_TAG = re.compile(r'(?:W/)?"([^"]*)"')


def make_etag(incarnation: str, start: int, end: int, closed_at_end: bool) -> str:
    """`incarnation` is unique per created stream, so a re-created one never answers 304 for the old."""
    return f'"{incarnation}:{start}:{end}{":c" if closed_at_end else ""}"'


def matches(if_none_match: str | None, etag: str) -> bool:
    """Weak comparison, as RFC 9110 13.1.2 asks: lists, `W/` and `*` are understood."""
    if if_none_match is None:
        return False
    if if_none_match == etag or if_none_match.strip() == "*":
        return True
    return etag.strip('"') in _ENTITY_TAG.findall(if_none_match)


def cache_control(remaining_seconds: int | None, private: bool) -> str:
    """For responses with data, which never change; never cached longer than the stream may live."""
    max_age = SHARED_MAX_AGE_SECONDS
    if remaining_seconds is not None:
        max_age = max(0, min(max_age, remaining_seconds))
    stale = 300 if remaining_seconds is None else max(0, min(300, remaining_seconds - max_age))
    scope = "private" if private else "public"
    return f"{scope}, max-age={max_age}, stale-while-revalidate={stale}"
