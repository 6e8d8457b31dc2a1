"""Reading a bucket's feed: positions, pages and Arrow. No I/O; pyarrow is loaded with the first page."""

from collections.abc import Mapping
from typing import Any

from perennial.client.calls import Call
from perennial.client.patience import Patience
from perennial.client.reading import RETRIED
from perennial.client.requests import Requests, checked


class FeedState:
    """Decides which page to ask for next, and makes record batches of the answers.

    `position` is behind the last batch handed out: a consumer that stores it with what it made of the batch
    sees every message exactly once.
    """

    def __init__(
        self,
        requests: Requests,
        bucket: str,
        after: int,
        until: int | None,
        stream: str | None,
        prefix: str | None,
        page_bytes: int | None,
        live: bool,
        patience_seconds: float,
    ) -> None:
        self._requests = requests
        self._bucket = bucket
        self._query = {"until": until, "stream": stream, "prefix": prefix, "limit": page_bytes}
        self._until = until
        self._counts = stream is None and prefix is None
        self._live = live
        self._patience = Patience(patience_seconds)
        self._next = after
        self._ended = False
        self._batches: list[Any] = []
        self.position = after
        self.head = 0
        self.missing = 0

    @property
    def ended(self) -> bool:
        return self._ended and not self._batches

    def next_call(self) -> Call | None:
        """None while batches of the last page wait to be handed out."""
        if self._batches:
            return None
        query = self._query | {"after": self._next, "live": "long-poll" if self._live else None}
        return self._requests.feed("GET", self._bucket, query)

    def take(self, status: int, headers: Mapping[str, str], body: bytes) -> bool:
        """False: try again later. Raises `Refused`."""
        if status in RETRIED:
            return False
        checked(status, headers, body if status >= 300 else b"")
        self._patience.restored()
        import pyarrow as pa

        reader = pa.ipc.open_stream(body)
        self._batches = [batch for batch in reader if batch.num_rows]
        self._schema = reader.schema
        after, self._next = self._next, int(headers["feed-next-position"])
        self.head = int(headers["feed-head-position"])
        if self._counts:
            self.missing += self._next - after - sum(batch.num_rows for batch in self._batches)
        last = self.head if self._until is None else min(self.head, self._until)
        self._ended = not self._live and self._next >= last
        if not self._batches:
            self.position = self._next
        return True

    def next_batch(self) -> Any | None:
        if not self._batches:
            return None
        batch = self._batches.pop(0)
        self.position = self._next if not self._batches else batch.column("position")[-1].as_py()
        return batch

    def pause(self, now: float) -> float:
        return self._patience.lost(now)

    def table(self, batches: list[Any]) -> Any:
        import pyarrow as pa

        return pa.Table.from_batches(batches, self._schema)
