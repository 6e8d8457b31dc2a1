"""Content types: only the media type counts in comparisons, letter case and parameters do not."""

import re
from functools import lru_cache
from typing import Final

from perennial.protocol.rejections import Malformed

DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"
JSON: Final = "application/json"
MAX_CHARACTERS: Final = 256

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_CONTENT_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")


@lru_cache(maxsize=4096)
def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def is_json(content_type: str) -> bool:
    return media_type(content_type) == JSON


def is_text(content_type: str) -> bool:
    return media_type(content_type).startswith("text/")


def check_content_type(value: str) -> str | Malformed:
    # Anyone can send a long one, so it is refused before it could be remembered.
    return _malformed(value) if len(value) > MAX_CHARACTERS else _check(value)


@lru_cache(maxsize=4096)
def _check(value: str) -> str | Malformed:
    return value if _CONTENT_TYPE.fullmatch(value) else _malformed(value)


def _malformed(value: str) -> Malformed:
    return Malformed(f"malformed Content-Type {value[:64]!r}: expected type/subtype")
