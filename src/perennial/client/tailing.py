"""Following a stream from an offset: SSE where it works, long-poll where it does not. No I/O.

The offset moves only with what the server says of it, after the data has come; so a connection that breaks
anywhere is taken up again without a message lost or repeated.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from perennial.client.calls import Call
from perennial.client.errors import Disconnected, PerennialClientError
from perennial.client.messages import Message
from perennial.client.patience import Patience
from perennial.client.reading import RETRIED
from perennial.client.requests import Offset, Requests, checked, offset_text
from perennial.protocol.media import is_json
from perennial.protocol.messages import split_json
from perennial.protocol.offsets import BEGINNING, NOW
from perennial.protocol.rejections import Malformed

SSE: Final = "sse"
LONG_POLL: Final = "long-poll"
# Event streams that end without a single event: something in between holds them back.
SILENT_STREAMS: Final = 2


class Tail:
    """Decides what to ask next and makes messages of the answers. `offset` is behind the last one made."""

    def __init__(
        self, requests: Requests, bucket: str, stream: str, offset: Offset, patience_seconds: float
    ) -> None:
        self._requests = requests
        self._address = (bucket, stream)
        self._patience = Patience(patience_seconds)
        self._cursor: str | None = None
        self._content_type = ""
        self._encoded = False
        self._events = EventReader()
        self._data: bytes | None = None
        self._silent = 0
        self.offset = offset_text(offset)
        self.mode = SSE
        self.closed = False

    def next_call(self) -> Call:
        self._events = EventReader()
        self._data = None
        query = {"offset": self.offset, "live": self.mode, "cursor": self._cursor}
        call = self._requests.read(*self._address, query)
        if self.mode == SSE:
            call.headers["accept"] = "text/event-stream"
        return call

    def streams_events(self, status: int, headers: Mapping[str, str]) -> bool:
        """True: feed the answer piece by piece. False: read it whole and `take` it."""
        if self.mode != SSE or status != 200:
            return False
        if not headers.get("content-type", "").startswith("text/event-stream"):
            return False
        self._silent += 1  # until an event comes
        self._encoded = headers.get("stream-sse-data-encoding", "").lower() == "base64"
        return True

    @property
    def wants_more(self) -> bool:
        """Of an event stream."""
        return self.mode == SSE and not self.closed

    def feed(self, piece: bytes) -> list[Message]:
        """Of an event stream."""
        found: list[Message] = []
        for kind, data in self._events.feed(piece):
            self._silent = 0
            self._patience.restored()
            if kind == "data":
                self._data = base64.b64decode(data) if self._encoded else data.encode()
            elif kind == "control":
                found += self._control(json.loads(data))
            if self.mode != SSE:
                break  # the rest is asked for again
        return found

    def take(self, status: int, headers: Mapping[str, str], body: bytes) -> list[Message] | None:
        """Of a long-poll, or of whatever answered instead of an event stream; raises `Refused`.

        None: the server asks for time.
        """
        if status in RETRIED:
            return None
        if self.mode == SSE and status not in (404, 410):
            self.mode = LONG_POLL  # no events here; if it is another problem, the long-poll will tell
            return []
        checked(status, headers, body if status >= 300 else b"")
        self._patience.restored()
        self._cursor = headers.get("stream-cursor", self._cursor)
        self._content_type = headers.get("content-type", self._content_type)
        messages = self._advance(body, headers.get("stream-next-offset", self.offset)) if body else []
        self.closed = "stream-closed" in headers and "stream-up-to-date" in headers
        return messages

    def look(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """At the answer to HEAD, for the content type, which event streams do not tell."""
        checked(status, headers, body)
        if "content-type" not in headers:
            raise Disconnected("the connection broke in the middle of an answer")
        self._content_type = headers["content-type"]

    def pause(self, now: float) -> float:
        """The connection broke, or the server asked for time: how long to wait."""
        return self._patience.lost(now, int(self.offset) if self.offset.isdigit() else None)

    def ended(self) -> None:
        """An event stream came to its end; that is how they are renewed."""
        if self._silent >= SILENT_STREAMS:
            self.mode = LONG_POLL

    def _control(self, control: Mapping[str, Any]) -> list[Message]:
        data, self._data = self._data, None
        self._cursor = control.get("streamCursor", self._cursor)
        messages: list[Message] = []
        if data is not None:
            messages = self._advance(data, control["streamNextOffset"])
            if self.mode != SSE:
                return []
        else:
            self.offset = control["streamNextOffset"]
        self.closed = control.get("streamClosed", False)
        return messages

    def _advance(self, data: bytes, next_offset: str) -> list[Message]:
        if is_json(self._content_type):
            pieces = split_json(data)
            if isinstance(pieces, Malformed):
                raise PerennialClientError(f"the server sent something else than JSON: {pieces.reason}")
        else:
            pieces = [data]
        if not pieces:
            self.offset = next_offset
            return []
        size = sum(map(len, pieces))
        if self.offset == NOW:
            position = int(next_offset) - size
        else:
            position = 0 if self.offset == BEGINNING else int(self.offset)
        if self.mode == SSE and position + size != int(next_offset):
            # Line ends of a text do not survive an event stream; a long-poll gives every byte as it was.
            self.mode = LONG_POLL
            return []
        messages = []
        for piece in pieces:
            position += len(piece)
            messages.append(Message(piece, self._content_type, f"{position:016d}"))
        self.offset = next_offset
        return messages


class EventReader:
    """Server-sent events as they come in: (kind, data)."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, piece: bytes) -> list[tuple[str, str]]:
        *blocks, self._buffer = (self._buffer + piece).split(b"\n\n")
        return [event for event in map(_parse_event, blocks) if event is not None]


def _parse_event(block: bytes) -> tuple[str, str] | None:
    kind, data = "message", []
    for line in block.decode("utf-8", "replace").split("\n"):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            kind = value
        elif field == "data":
            data.append(value)
    return (kind, "\n".join(data)) if data else None
