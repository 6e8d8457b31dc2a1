"""Bootstrap: a snapshot and the messages after it out of one answer. No I/O."""

from collections.abc import Mapping

from perennial.client.errors import Disconnected
from perennial.client.messages import Message, Snapshot
from perennial.client.multipart import Part, PartReader
from perennial.client.requests import checked
from perennial.protocol.offsets import BEGINNING


class BootstrapReader:
    """Feed it the body; `snapshot` is known when `begun`, messages come in their order."""

    def __init__(self, status: int, headers: Mapping[str, str], refused: bytes = b"") -> None:
        """`refused` is the body of an answer that is no bootstrap; raises `Refused`."""
        checked(status, headers, refused)
        self._parts = PartReader(headers["content-type"])
        self.snapshot_offset = headers["stream-snapshot-offset"]
        self.next_offset = headers["stream-next-offset"]
        self.closed = "stream-closed" in headers
        self.snapshot: Snapshot | None = None
        self.begun = False
        self._position = 0 if self.snapshot_offset == BEGINNING else int(self.snapshot_offset)

    @property
    def ended(self) -> bool:
        return self._parts.ended

    def feed(self, data: bytes) -> list[Message]:
        return [message for part in self._parts.feed(data) if (message := self._take(part)) is not None]

    def finish(self) -> None:
        """The answer is over; was it whole?"""
        if not self.ended:
            raise Disconnected("the bootstrap broke off in the middle; ask for it again")

    def _take(self, part: Part) -> Message | None:
        if not self.begun:
            self.begun = True
            if self.snapshot_offset != BEGINNING:
                self.snapshot = Snapshot(part.body, part.content_type, self.snapshot_offset)
            return None
        self._position += len(part.body)
        return Message(part.body, part.content_type, f"{self._position:016d}")
