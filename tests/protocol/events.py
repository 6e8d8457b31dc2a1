"""An event stream parser that follows the HTML standard to the letter, to check what we send."""

import re
from typing import NamedTuple


class Event(NamedTuple):
    name: str
    data: bytes


def parse_events(stream: bytes) -> list[Event]:
    """The events dispatched by a complete stream; an unfinished last one is dropped, as browsers do."""
    events: list[Event] = []
    name, data = b"", b""
    lines = re.split(rb"\r\n|\r|\n", stream.removeprefix(b"\xef\xbb\xbf"))
    for line in lines[:-1]:  # what follows the last line break is an unfinished line
        if not line:
            if data:
                events.append(Event((name or b"message").decode(), data.removesuffix(b"\n")))
            name, data = b"", b""
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value
        elif field == b"data":
            data += value + b"\n"
    return events
