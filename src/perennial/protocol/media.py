"""Content types: only the media type counts in comparisons, letter case and parameters do not."""

import re
from functools import lru_cache
from typing import Final

from perennial.protocol.rejections import Malformed

DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"
JSON: Final = "application/json"

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_CONTENT_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")


@lru_cache(maxsize=4096)
def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def is_json(content_type: str) -> bool:
    return media_type(content_type) == JSON


def is_text(content_type: str) -> bool:
    return media_type(content_type).startswith("text/")


@lru_cache(maxsize=4096)
def check_content_type(value: str) -> str | Malformed:
    if len(value) > 256 or _CONTENT_TYPE.fullmatch(value) is None:
        return Malformed(f"malformed Content-Type {value[:64]!r}: expected type/subtype")
    return value
