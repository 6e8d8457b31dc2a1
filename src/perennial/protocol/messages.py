"""Messages: how a body splits into them (JSON mode, base protocol 7.1), and how they join into a body.

A byte stream takes each body as one message. A JSON stream takes one message per value, one array level
flattened, and keeps each value's own bytes: nothing is ever re-serialised.
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from perennial.protocol.rejections import Malformed

_value = msgspec.json.Decoder(msgspec.Raw)
_array = msgspec.json.Decoder(list[msgspec.Raw])

# Python refuses to read integers of more than 4300 digits: one such message and its readers are stuck.
MAX_DIGITS: Final = 1000

_LONG_NUMBER: Final = b"0" * (MAX_DIGITS + 1)
_DIGITS_TO_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"')

_TOO_DEEP = Malformed("the JSON is nested too deeply")
_TOO_LONG = Malformed(f"the JSON has a number of more than {MAX_DIGITS} digits")
EMPTY_ARRAY = Malformed("an empty JSON array appends nothing; send at least one message")


def split_json(body: bytes) -> list[bytes] | Malformed:
    """The messages of a JSON body: the elements of an array, or the single value it is."""
    try:
        # The decoder checks structure but skips over string contents, so UTF-8 is checked here.
        body.decode("utf-8")
        whole = bytes(_value.decode(body))
        if len(whole) > MAX_DIGITS and _has_long_number(whole):
            return _TOO_LONG
        if not whole.startswith(b"["):
            return [whole]
        return [bytes(element) for element in _array.decode(whole)]
    except UnicodeDecodeError as error:
        return Malformed(f"the body is not valid UTF-8: {error.reason} at byte {error.start}")
    except RecursionError:
        return _TOO_DEEP
    except msgspec.ValidationError as error:
        return Malformed(f"the body has JSON beyond this server's limits: {error}")
    except msgspec.DecodeError as error:
        return Malformed(f"the body is not valid JSON: {error}")


def join_json(messages: Iterable[bytes | memoryview]) -> bytes:
    return b"[" + b",".join(messages) + b"]"


def _has_long_number(text: bytes) -> bool:
    # Two linear passes that run at memory speed; strings are only told from numbers if there is a reason to.
    if _LONG_NUMBER not in text.translate(_DIGITS_TO_ZEROS):
        return False
    return _LONG_NUMBER in _STRING.sub(b"", text).translate(_DIGITS_TO_ZEROS)
