"""What the service asks of a store. A second engine implements this page and passes `tests/store`.

Writes happen in two steps: `write` applies a batch atomically (it is then visible to reads, and survives
the death of the process), `sync` makes everything written so far survive the death of the machine.
"""

from collections.abc import Iterator
from typing import Protocol

import msgspec

from perennial.protocol.state import ProducerState, StreamState
from perennial.store.blocks import Block


class StreamRow(msgspec.Struct, frozen=True, array_like=True):
    """A stream at rest. `deadline_ms`: when it expires unless touched again."""

    state: StreamState
    deadline_ms: int | None = None


class BucketRow(msgspec.Struct, frozen=True, array_like=True):
    """`streams` counts what listings show; `hidden` the deleted streams that forks keep alive."""

    created_ms: int
    streams: int = 0
    hidden: int = 0


class Counters(msgspec.Struct, frozen=True, array_like=True):
    """The next numbers to hand out. Neither ever goes back or repeats."""

    stream_id: int = 1
    position: int = 1


class Batch(Protocol):
    """Changes that happen together or not at all."""

    def put_stream(self, key: bytes, row: StreamRow) -> None: ...
    def remove_stream(self, key: bytes) -> None: ...
    def put_block(self, stream_id: int, offset: int, value: bytes) -> None: ...
    def put_producer(self, stream_id: int, producer_id: str, state: ProducerState) -> None: ...
    def put_feed(self, bucket: str, position: int, value: bytes) -> None: ...
    def put_deadline(self, deadline_ms: int, key: bytes) -> None: ...
    def remove_deadline(self, deadline_ms: int, key: bytes) -> None: ...
    def put_bucket(self, bucket: str, row: BucketRow) -> None: ...
    def remove_bucket(self, bucket: str) -> None: ...
    def put_counters(self, counters: Counters) -> None: ...
    def discard(self, stream_id: int) -> None:
        """The stream's blocks and producers may be removed whenever there is time."""

    def put_sealed(self, stream_id: int, start: int, end: int, value: bytes) -> None:
        """Replace the blocks of [start, end) by one, and remember that all before `end` is sealed."""

    def mark_sealed(self, stream_id: int, end: int) -> None: ...


class Store(Protocol):
    """May raise `StoreError` anywhere; nothing is half-done when it does."""

    def batch(self) -> Batch: ...

    def write(self, batch: Batch) -> None: ...

    def sync(self) -> None:
        """Blocks; called from a thread of its own, one call at a time."""

    def stream(self, key: bytes) -> StreamRow | None: ...

    def streams(self, bucket: str, prefix: str, after: str) -> Iterator[tuple[str, StreamRow]]:
        """Streams of a bucket by name, those greater than `after` that begin with `prefix`."""

    def producer(self, stream_id: int, producer_id: str) -> ProducerState | None: ...

    def blocks(self, stream_id: int, start: int, end: int) -> Iterator[Block]:
        """The stored blocks that overlap [start, end), in order."""

    def sealed_until(self, stream_id: int) -> int: ...

    def due(self, now_ms: int, limit: int) -> list[tuple[int, bytes]]:
        """Deadlines that have passed, earliest first, with the keys of their streams."""

    def bucket(self, bucket: str) -> BucketRow | None: ...

    def counters(self) -> Counters: ...

    def collect_garbage(self) -> bool:
        """Remove what one discarded stream left behind; False when there was none."""

    def close(self) -> None: ...
