"""What the proxy writes to its streams, and what it must remember across a crash.

Beside the frames, two kinds of rows are kept, each written in the same commit as the frames it speaks of:

| key                          | value                      | written with                              |
| ---------------------------- | -------------------------- | ----------------------------------------- |
| `i` stream id                | incarnation, last response | a Start frame                             |
| `o` stream id, response id   | incarnation                | a Start frame; removed with the terminal  |

So a response is marked open exactly as long as its terminal frame is missing, and a start that finds a mark
knows what to write. The incarnation tells a deleted stream from one created later under the same name.
"""

import asyncio
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from perennial.protocol.append import Append
from perennial.protocol.create import Create
from perennial.protocol.frames import LARGEST_RESPONSE_ID
from perennial.protocol.media import DEFAULT_CONTENT_TYPE
from perennial.protocol.names import PROXY_BUCKET
from perennial.protocol.rejections import Rejected
from perennial.protocol.state import StreamState
from perennial.proxy.errors import NoSuchStream, StorageFailed, StreamIsClosed
from perennial.service.commits import NotStored, Reply
from perennial.service.streams import StreamService
from perennial.store.interface import Batch

_IDS: Final = b"i"
_OPEN: Final = b"o"
_LAST = struct.Struct(">QI")
_INCARNATION = struct.Struct(">Q")
_RESPONSE = struct.Struct(">I")


class Ledger:
    """The proxy's streams: ordinary streams of bytes, in a bucket of their own."""

    def __init__(self, service: StreamService) -> None:
        self._service = service
        # Last response ids that the store may not have yet, by stream; see `settle`.
        self._last: dict[str, int] = {}

    # Streams

    def check(self, stream_id: str) -> None:
        """May a response be added? Raises `NoSuchStream` or `StreamIsClosed`."""
        state = self._accepted(stream_id)
        if state is None:
            raise NoSuchStream("there is no such proxy stream")
        if state.closed:
            raise StreamIsClosed("the stream is closed and takes no more responses")

    async def ensure(self, stream_id: str) -> bool:
        """Create the stream unless it is there; True if it was created."""
        handle = self._service.find(PROXY_BUCKET, stream_id)
        if handle is not None and self._accepted(stream_id) is not None:
            stored, reply = _wish()
            self._service.committer.answer(handle, reply, None, None)
            outcome = await stored
            _raise_if_rejected(outcome)
            return False
        stored, reply = _wish()
        self._service.create(PROXY_BUCKET, stream_id, Create(content_type=DEFAULT_CONTENT_TYPE), reply)
        outcome = await stored
        _raise_if_rejected(outcome)
        return isinstance(outcome, list)

    async def delete(self, stream_id: str) -> None:
        stored, reply = _wish()
        existed = self._accepted(stream_id) is not None
        self._service.delete(PROXY_BUCKET, stream_id, reply)
        self._last.pop(stream_id, None)
        if existed:
            self._with_it(lambda batch: batch.remove_proxy(_IDS + stream_id.encode()))
        if isinstance(await stored, NotStored):
            raise StorageFailed("the stream could not be deleted: the disk does not take it")

    # Responses

    def start(self, stream_id: str, new_stream: bool, frames: Callable[[int], bytes], reply: Reply) -> int:
        """Write the first frames of a response and give it its id. They are made with that id.

        The stream takes it synchronously, `reply` comes when it is durable; so two responses that start
        together get two ids. Raises like `check`.
        """
        if new_stream:
            response_id = 1
            command = Create(body=frames(1), content_type=DEFAULT_CONTENT_TYPE)
            self._service.create(PROXY_BUCKET, stream_id, command, reply)
        else:
            self.check(stream_id)
            response_id = self._last_id(stream_id) + 1
            if response_id > LARGEST_RESPONSE_ID:
                raise StreamIsClosed("the stream has as many responses as it can number")
            self._append(stream_id, frames(response_id), reply)
        state = self._accepted(stream_id)
        assert state is not None, "just created, or just checked"
        self._last[stream_id] = response_id
        self._with_it(partial(_mark_open, stream_id, response_id, state.id))
        return response_id

    def write(self, stream_id: str, frames: bytes, reply: Reply) -> None:
        self._append(stream_id, frames, reply)

    def finish(self, stream_id: str, response_id: int, frames: bytes, reply: Reply) -> None:
        """Write the last frames of a response, and with them that it is no longer open."""
        before = self._accepted(stream_id)
        self._append(stream_id, frames, reply)
        if self._accepted(stream_id) is not before:
            self.forget(stream_id, response_id)

    def forget(self, stream_id: str, response_id: int) -> None:
        """No terminal frame is due any more: it is being written, or its stream is gone."""
        self._with_it(lambda batch: batch.remove_proxy(_open_key(stream_id, response_id)))

    def settle(self, stream_id: str) -> None:
        """The store's word on this stream's ids holds: nothing is in flight, or what was has failed."""
        self._last.pop(stream_id, None)

    def left_open(self) -> Iterator[tuple[str, int]]:
        """Responses without a terminal frame; at a start, these are the ones a crash cut off."""
        for key, value in list(self._service.store.proxy_rows(_OPEN)):
            stream_id, response_id = key[1 : -_RESPONSE.size].decode(), _RESPONSE.unpack(key[-4:])[0]
            state = self._accepted(stream_id)
            if state is None or state.closed or state.id != _INCARNATION.unpack(value)[0]:
                self.forget(stream_id, response_id)
            else:
                yield stream_id, response_id

    # Steps

    def _accepted(self, stream_id: str) -> StreamState | None:
        handle = self._service.find(PROXY_BUCKET, stream_id)
        state = None if handle is None else handle.accepted
        return None if state is None or state.soft_deleted else state

    def _append(self, stream_id: str, frames: bytes, reply: Reply) -> None:
        self._service.append(PROXY_BUCKET, stream_id, Append(frames, DEFAULT_CONTENT_TYPE), reply)

    def _last_id(self, stream_id: str) -> int:
        known = self._last.get(stream_id)
        if known is not None:
            return known
        row = self._service.store.proxy_row(_IDS + stream_id.encode())
        state = self._accepted(stream_id)
        if row is None or state is None:
            return 0
        incarnation, last = _LAST.unpack(row)
        return int(last) if incarnation == state.id else 0

    def _with_it(self, extra: Callable[[Batch], None]) -> None:
        """Into the commit that the change just accepted is part of."""
        self._service.committer.enlist().extras.append(extra)


def _wish() -> tuple[asyncio.Future[Any], Reply]:
    """A reply function, and the outcome it will be called with."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def reply(outcome: Any, state: StreamState | None) -> None:
        if not future.done():
            future.set_result(outcome)

    return future, reply


def _raise_if_rejected(outcome: Any) -> None:
    if isinstance(outcome, Rejected):
        raise StorageFailed(outcome.message)


def _mark_open(stream_id: str, response_id: int, incarnation: int, batch: Batch) -> None:
    batch.put_proxy(_IDS + stream_id.encode(), _LAST.pack(incarnation, response_id))
    batch.put_proxy(_open_key(stream_id, response_id), _INCARNATION.pack(incarnation))


def _open_key(stream_id: str, response_id: int) -> bytes:
    return _OPEN + stream_id.encode() + _RESPONSE.pack(response_id)
