"""Uploads: a snapshot on its way in, stored piece by piece, in nobody's sight until it is published.

Pieces are written without waiting for the disk; the commit that publishes them makes them durable, since
they precede it in the same log. An upload that is never published is discarded, at once or by the next start.
When the disk takes no more, the rest of the body is taken in and dropped, and `failure` says so at its end.
"""

from typing import Final

from perennial.store.errors import StoreError
from perennial.store.interface import Batch, Store

PIECE_BYTES: Final = 1 << 20


class Upload:
    def __init__(self, store: Store, blob: int, stream_id: int) -> None:
        self._store = store
        self.blob = blob
        self.stream_id = stream_id  # whose state it is; another stream may have its name by the end
        self.size = 0
        self.failure: StoreError | None = None
        self._pieces = 0
        self._buffer = bytearray()
        batch = store.batch()
        batch.begin_blob(blob)
        # Together, or after a crash the number is given out again while its old pieces wait to be removed.
        batch.put_next_id(blob + 1)
        self._try(batch)

    def feed(self, data: bytes) -> None:
        if self.failure is not None:
            return
        self.size += len(data)
        self._buffer += data
        while len(self._buffer) >= PIECE_BYTES:
            self._write(bytes(self._buffer[:PIECE_BYTES]))
            del self._buffer[:PIECE_BYTES]

    def finish(self) -> None:
        """Everything has come in."""
        if self._buffer:
            self._write(bytes(self._buffer))
            self._buffer.clear()

    def abandon(self) -> None:
        batch = self._store.batch()
        batch.discard_blob(self.blob)
        batch.keep_blob(self.blob)
        self._try(batch)

    def _write(self, piece: bytes) -> None:
        batch = self._store.batch()
        batch.put_piece(self.blob, self._pieces, piece)
        self._try(batch)
        self._pieces += 1

    def _try(self, batch: Batch) -> None:
        try:
            self._store.write(batch)
        except StoreError as error:
            self.failure = error
