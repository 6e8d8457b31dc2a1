"""Messages: how a body splits into them (JSON mode, base protocol 7.1), and how they join into a body.

A byte stream takes each body as one message. A JSON stream takes one message per value, one array level
flattened, and keeps each value's own bytes: nothing is ever re-serialised.
"""

from collections.abc import Iterable

import msgspec

from perennial.protocol.rejections import Malformed

_value = msgspec.json.Decoder(msgspec.Raw)
_array = msgspec.json.Decoder(list[msgspec.Raw])

_TOO_DEEP = Malformed("the JSON is nested too deeply")
EMPTY_ARRAY = Malformed("an empty JSON array appends nothing; send at least one message")


def split_json(body: bytes) -> list[bytes] | Malformed:
    """The messages of a JSON body: the elements of an array, or the single value it is."""
    try:
        # The decoder checks structure but skips over string contents, so UTF-8 is checked here.
        body.decode("utf-8")
        whole = bytes(_value.decode(body))
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
