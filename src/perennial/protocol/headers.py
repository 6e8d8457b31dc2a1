"""Header names as the specification spells them, and the parsing of request headers into values.

Names are lower-case bytes, the form in which requests carry them; values arrive as latin-1 text.
"""

import re
from datetime import UTC, datetime
from typing import Final

from perennial.protocol.rejections import Malformed
from perennial.protocol.state import ProducerClaim

CONTENT_TYPE: Final = b"content-type"
STREAM_TTL: Final = b"stream-ttl"
STREAM_EXPIRES_AT: Final = b"stream-expires-at"
STREAM_SEQ: Final = b"stream-seq"
STREAM_CLOSED: Final = b"stream-closed"
STREAM_CURSOR: Final = b"stream-cursor"
STREAM_NEXT_OFFSET: Final = b"stream-next-offset"
STREAM_UP_TO_DATE: Final = b"stream-up-to-date"
STREAM_SSE_DATA_ENCODING: Final = b"stream-sse-data-encoding"
STREAM_FORKED_FROM: Final = b"stream-forked-from"
STREAM_FORK_OFFSET: Final = b"stream-fork-offset"
STREAM_FORK_SUB_OFFSET: Final = b"stream-fork-sub-offset"
STREAM_SNAPSHOT_OFFSET: Final = b"stream-snapshot-offset"
PRODUCER_ID: Final = b"producer-id"
PRODUCER_EPOCH: Final = b"producer-epoch"
PRODUCER_SEQ: Final = b"producer-seq"
PRODUCER_EXPECTED_SEQ: Final = b"producer-expected-seq"
PRODUCER_RECEIVED_SEQ: Final = b"producer-received-seq"

LARGEST_SAFE_INTEGER: Final = 2**53 - 1
LAST_INSTANT_MS: Final = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z: years have four digits
# What a stream remembers for a writer is rewritten with every append; these are names, not documents.
MAX_REMEMBERED_CHARS: Final = 1024

_COUNT = re.compile(r"0|[1-9][0-9]*")
_DIGITS = re.compile(r"[0-9]+")
_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def parse_closed(value: str | None) -> bool:
    """Only `true`, in any letter case, counts; anything else is as if absent (base protocol, 4.1)."""
    return value is not None and value.lower() == "true"


def parse_count(name: str, value: str) -> int | Malformed:
    """A non-negative decimal without sign, leading zeros, point or exponent (base protocol, 5.1)."""
    if _COUNT.fullmatch(value) is None or int(value[:17]) > LARGEST_SAFE_INTEGER:
        return Malformed(
            f"{name} must be a whole number up to 2^53-1 without sign or leading zeros, not {value[:64]!r}"
        )
    return int(value)


def parse_expires_at(value: str) -> int | Malformed:
    """Milliseconds since the epoch of a strict RFC 3339 instant with a zone."""
    if _RFC3339.fullmatch(value) is not None:
        try:
            # Python keeps microseconds at most; digits beyond them cannot change the millisecond.
            text = re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", value.upper())
            at_ms = round(datetime.fromisoformat(text).timestamp() * 1000)
            if at_ms <= LAST_INSTANT_MS:
                return max(0, at_ms)  # all that lies before 1970 has passed, and deadlines have no sign
        except (ValueError, OverflowError):
            pass  # such as February the 30th
    return Malformed(
        f"Stream-Expires-At must be an RFC 3339 time like 2030-01-15T12:00:00Z, not {value[:64]!r}"
    )


def format_instant(at_ms: int) -> str:
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03d}Z"


def parse_producer(
    identity: str | None, epoch: str | None, seq: str | None
) -> ProducerClaim | Malformed | None:
    """The producer headers come all together or not at all (base protocol, 5.2.1)."""
    if identity is None and epoch is None and seq is None:
        return None
    if identity is None or epoch is None or seq is None:
        return Malformed("Producer-Id, Producer-Epoch and Producer-Seq must be sent together")
    if not identity:
        return Malformed("Producer-Id must not be empty")
    if len(identity) > MAX_REMEMBERED_CHARS:
        return Malformed(f"Producer-Id is longer than {MAX_REMEMBERED_CHARS} characters")
    numbers = []
    for name, value in (("Producer-Epoch", epoch), ("Producer-Seq", seq)):
        # Never more than seventeen digits are converted: thousands would be slow, and then an error.
        digits = value.lstrip("0") or "0"
        if _DIGITS.fullmatch(value) is None or int(digits[:17]) > LARGEST_SAFE_INTEGER:
            return Malformed(f"{name} must be a whole number up to 2^53-1, not {value[:64]!r}")
        numbers.append(int(digits))
    return ProducerClaim(identity, *numbers)


def parse_seq(value: str | None) -> str | Malformed | None:
    """Opaque, and compared character by character; only its length is limited."""
    if value is not None and len(value) > MAX_REMEMBERED_CHARS:
        return Malformed(f"Stream-Seq is longer than {MAX_REMEMBERED_CHARS} characters")
    return value
