"""Server-Sent Events on the wire (base protocol, 5.8): one data event and one control event per batch.

Clients and the public suite are strict about the form: `event: name` with a space, `data:text` without,
bare LF, and a control event after every data event.
"""

import base64
import re

_LINE_BREAK = re.compile(rb"\r\n|\r|\n")


def encode_text(payload: bytes) -> bytes:
    """Every line of the payload becomes a `data:` line, so no payload can fake an event."""
    if b"\n" not in payload and b"\r" not in payload:
        return _event_of([payload])
    return _event_of(_LINE_BREAK.split(payload))


def encode_base64(payload: bytes) -> bytes:
    return _event_of([base64.b64encode(payload)])


def encode_control(next_offset: str, cursor: int | None, up_to_date: bool, closed: bool) -> bytes:
    fields = [f'"streamNextOffset":"{next_offset}"']
    if cursor is not None and not closed:
        fields.append(f'"streamCursor":"{cursor}"')
    if up_to_date:
        fields.append('"upToDate":true')
    if closed:
        fields.append('"streamClosed":true')
    return f"event: control\ndata:{{{','.join(fields)}}}\n\n".encode()


def _event_of(lines: list[bytes]) -> bytes:
    # Parsers drop one leading space of a line, so a line that begins with one gets another in front.
    body = b"".join(b"data:" + (b" " if line.startswith(b" ") else b"") + line + b"\n" for line in lines)
    return b"event: data\n" + body + b"\n"
