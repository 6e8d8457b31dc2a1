"""Offsets: a position in a stream is the number of payload bytes before it, sixteen digits on the wire.

Fixed width makes the text sort like the number (base protocol, 6). The reference server's pair form
`N_M` is understood as input, because the public suite hard-codes it, but never minted.
"""

import re
from typing import Final

from perennial.protocol.rejections import Malformed

BEGINNING: Final = "-1"
NOW: Final = "now"

DIGITS: Final = 16
BEYOND_ANY_TAIL: Final = 10**DIGITS

_TOKEN = re.compile(r"([0-9]{16})(?:_([0-9]{16}))?")


def format_offset(position: int) -> str:
    return f"{position:016d}"


def parse_offset(token: str) -> int | Malformed:
    """The position a minted token stands for; sentinels are not positions and are refused here."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        return Malformed(f"malformed offset {token[:64]!r}: expected {DIGITS} digits, '-1' or 'now'")
    first, second = match.groups()
    if second is None:
        return int(first)
    return int(second) if int(first) == 0 else BEYOND_ANY_TAIL
