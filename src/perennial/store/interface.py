"""What the service asks of a store. A second engine implements this page and passes `tests/store`.

Writes happen in two steps: `write` applies a batch atomically (it is then visible to reads, and survives
the death of the process), `sync` makes everything written so far survive the death of the machine.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from perennial.protocol.state import ProducerState, StreamState
from perennial.store.blocks import Block


class StreamRow(msgspec.Struct, frozen=True, array_like=True):
    """A stream at rest. `deadline_ms`: when it expires unless touched again.

    `lags`: it may have grown since the row was written. The store has asked its blocks by the time it hands
    the row out, so `state` is right in any case.
    """

    state: StreamState
    deadline_ms: int | None = None
    lags: bool = False


class BucketRow(msgspec.Struct, frozen=True, array_like=True):
    """`streams` counts what listings show; `hidden` the deleted streams that forks keep alive; `bytes` the
    data and snapshots that are kept.

    `position` is the next feed position. A deleted bucket leaves its row behind, so that positions never
    repeat should the bucket be created again.
    """

    created_ms: int
    streams: int = 0
    hidden: int = 0
    position: int = 1
    deleted: bool = False
    bytes: int = 0


class Batch(Protocol):
    """Changes that happen together or not at all."""

    def put_stream(self, key: bytes, row: StreamRow) -> None: ...
    def remove_stream(self, key: bytes) -> None: ...
    def put_blocks(self, blocks: Iterable[tuple[int, int, bytes]]) -> None:
        """(stream id, offset, value) each."""

    def put_producer(self, stream_id: int, producer_id: str, state: ProducerState) -> None: ...
    def put_feed(self, bucket: str, position: int, value: bytes) -> None: ...
    def put_deadline(self, deadline_ms: int, key: bytes) -> None: ...
    def remove_deadline(self, deadline_ms: int, key: bytes) -> None: ...
    def put_bucket(self, bucket: str, row: BucketRow) -> None: ...
    def clear_feed(self, bucket: str) -> None: ...
    def put_next_id(self, number: int) -> None:
        """Streams and blobs draw their ids from one sequence that never goes back."""

    def put_proxy(self, key: bytes, value: bytes) -> None: ...
    def remove_proxy(self, key: bytes) -> None: ...

    def discard(self, stream_id: int) -> None:
        """The stream's blocks and producers may be removed whenever there is time."""

    def discard_blob(self, blob: int) -> None: ...
    def discard_before(self, stream_id: int, offset: int) -> None:
        """The stream's blocks that end at or before `offset` may be removed."""

    def put_grave(self, bucket: str, stream_id: int, offset: int) -> None:
        """Feed entries of this stream before `offset` are dead."""

    def begin_blob(self, blob: int) -> None:
        """Pieces follow. Unless `keep_blob` comes, the next start discards them."""

    def put_piece(self, blob: int, index: int, data: bytes) -> None: ...
    def keep_blob(self, blob: int) -> None: ...

    def put_sealed(self, stream_id: int, start: int, end: int, value: bytes) -> None:
        """Replace the blocks of [start, end) by one, and remember that all before `end` is sealed."""

    def mark_sealed(self, stream_id: int, end: int) -> None: ...
    def replace_feed(self, bucket: str, first: int, last: int, value: bytes | None) -> None:
        """Put one feed value in the place of those that begin in [first, last]."""

    def mark_feed_sealed(self, bucket: str, position: int) -> None: ...
    def remove_grave(self, bucket: str, stream_id: int) -> None: ...


class Store(Protocol):
    """May raise `StoreError` anywhere; nothing is half-done when it does."""

    def batch(self) -> Batch: ...

    def write(self, batch: Batch) -> None: ...

    def begin_sync(self) -> Callable[[], None]:
        """What has been written so far is to become durable. It is when the returned function, which blocks
        and may be called in another thread, has returned and `end_sync` has been called."""

    def end_sync(self) -> None: ...

    def stream(self, key: bytes) -> StreamRow | None: ...

    def streams(self, bucket: str, prefix: str, after: str) -> Iterator[tuple[str, StreamRow]]:
        """Streams of a bucket by name, those greater than `after` that begin with `prefix`."""

    def producer(self, stream_id: int, producer_id: str) -> ProducerState | None: ...

    def blocks(self, stream_id: int, start: int, end: int) -> Iterator[Block]:
        """The stored blocks that overlap [start, end), in order and no byte twice."""

    def block_values(self, stream_id: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The blocks that begin in [start, end) as they are stored, with their offsets: all as they were when
        the first was asked for, however long it takes."""

    def sealed_until(self, stream_id: int) -> int: ...

    def due(self, now_ms: int, limit: int) -> list[tuple[int, bytes]]:
        """Deadlines that have passed, earliest first, with the keys of their streams."""

    def bucket(self, bucket: str) -> BucketRow | None: ...

    def next_id(self) -> int: ...

    def proxy_row(self, key: bytes) -> bytes | None: ...

    def proxy_rows(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]: ...

    def piece(self, blob: int, index: int) -> bytes | None: ...

    def graves(self, bucket: str) -> dict[int, int]:
        """Stream ids and the offsets before which their feed entries are dead."""

    def feed(self, bucket: str, position: int) -> Iterator[tuple[int, bytes]]:
        """Feed values (see `feedlog`) and where they begin, from the one that covers `position`."""

    def feed_sealed_until(self, bucket: str) -> int:
        """Feed values that begin before this position have been merged into large ones."""

    def collect_garbage(self, held: Callable[[int], bool]) -> bool:
        """Remove what one discarded thing left behind; False when there was none.

        `held` tells ids that someone is still reading; their turn comes later.
        """

    def sizes(self) -> dict[str, int]:
        """Bytes by what they are: `<family>` on disk for each kind of row, `wal`, `memory`, `cache`."""

    def prepare_checkpoint(self) -> bool:
        """Make the next `checkpoint` quick; True while it is worth asking again in a moment."""

    def checkpoint(self, target: Path) -> None:
        """A copy of everything written so far in a new directory, to be opened as a store or carried away."""

    def close(self) -> None: ...
