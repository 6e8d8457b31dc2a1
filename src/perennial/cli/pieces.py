"""What `append` sends: input cut into request bodies, by rules that give the same cuts for the same input."""

import os
import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

PIECE_BYTES: Final = 256 * 1024
BATCH_MESSAGES: Final = 512


class Piece(NamedTuple):
    body: bytes
    messages: int
    size: int  # of the input it came from


class Pieces:
    """`steady`: never cut by the time at which input arrives, only by what it is."""

    def __init__(self, kind: str, files: list[Path], data: list[str], lines: bool, steady: bool) -> None:
        self._is_json = kind.partition(";")[0].strip().lower() == "application/json"
        self._files = files or ([] if data else [Path("-")])
        self._data = data
        self._lines = lines
        self._steady = steady

    @property
    def total_bytes(self) -> int | None:
        """None: not known before it has come."""
        if any(str(path) == "-" for path in self._files):
            return None
        return sum(path.stat().st_size for path in self._files) + sum(map(len, self._data))

    def __iter__(self) -> Iterator[Piece]:
        for text in self._data:
            yield Piece(os.fsencode(text), 1, len(text))  # byte for byte as it was typed
        for path in self._files:
            if str(path) == "-":
                yield from self._cut(sys.stdin.buffer, is_live=True)
            else:
                with path.open("rb") as source:
                    yield from self._cut(source, is_live=False)

    def _cut(self, source: BinaryIO, is_live: bool) -> Iterator[Piece]:
        if not self._lines:
            yield from _documents(source) if self._is_json else _blocks(source, is_live and not self._steady)
        elif not self._is_json:
            # Message boundaries are request boundaries; the line break stays, it is part of the text.
            yield from (Piece(line, 1, len(line)) for line in source)
        elif is_live and not self._steady:
            yield from _batches_as_they_come(source)
        else:
            yield from _batches(source)


def _documents(source: BinaryIO) -> Iterator[Piece]:
    document = source.read()
    if document.strip():
        yield Piece(document, 1, len(document))


def _blocks(source: BinaryIO, as_it_comes: bool) -> Iterator[Piece]:
    take = getattr(source, "read1", source.read) if as_it_comes else source.read
    while block := take(PIECE_BYTES):
        yield Piece(block, 1, len(block))


def _batches(lines: Iterable[bytes]) -> Iterator[Piece]:
    """JSON lines, gathered into arrays: each stays a message of its own."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        size += len(line)
        if line.strip():
            batch.append(line.strip())
        if len(batch) >= BATCH_MESSAGES or size >= PIECE_BYTES:
            yield _array(batch, size)
            batch, size = [], 0
    if batch:
        yield _array(batch, size)


def _batches_as_they_come(source: BinaryIO) -> Iterator[Piece]:
    """As `_batches`, without waiting for lines that have not been written yet."""
    arrived: queue.Queue[bytes | None] = queue.Queue(maxsize=4 * BATCH_MESSAGES)

    def read() -> None:
        for line in chain(source, [None]):
            arrived.put(line)

    threading.Thread(target=read, daemon=True).start()
    over = False
    while not over:
        ready = [arrived.get()]
        while len(ready) < BATCH_MESSAGES:
            try:
                ready.append(arrived.get_nowait())
            except queue.Empty:
                break
        over = None in ready
        yield from _batches(line for line in ready if line is not None)


def _array(batch: list[bytes], size: int) -> Piece:
    return Piece(b"[" + b",".join(batch) + b"]", len(batch), size)
