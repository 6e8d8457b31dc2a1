"""Buckets, snapshots, bootstrap and feeds for asyncio: `client`, with the same names and the same behaviour.

async with AsyncClient("http://127.0.0.1:4437") as client:
    await client.create_bucket("agents")
    async with client.bootstrap("agents", "user-1") as boot:
        state = fold(await boot.snapshot(), [message async for message in boot.messages()])
        async for message in boot.tail():
            …
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import IO, Any, Self

from perennial.client.bootstrapping import BootstrapReader
from perennial.client.calls import Call
from perennial.client.client import PATIENCE_SECONDS, PIECE_BYTES, READ_TIMEOUT_SECONDS
from perennial.client.errors import Disconnected, Refused
from perennial.client.feeds import FeedState
from perennial.client.messages import BucketInfo, FeedRange, Message, Snapshot, StreamInfo
from perennial.client.requests import DEFAULT_URL, Listing, Offset, Requests, bucket_info, checked, feed_range
from perennial.client.tailing import Tail
from perennial.client.wire import ConnectionLost
from perennial.client.wire_async import AsyncAnswer, AsyncWire

AsyncContent = bytes | IO[bytes] | Iterable[bytes] | AsyncIterable[bytes]


class AsyncClient:
    """See `Client`. Lives on one event loop."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: str | None = None,
        *,
        timeout: float = READ_TIMEOUT_SECONDS,
        patience: float = PATIENCE_SECONDS,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._requests = Requests(url, token)
        self._wire = AsyncWire(timeout, ssl_context, self._requests.address.socket)
        self._patience = patience

    # Buckets

    async def create_bucket(self, bucket: str) -> None:
        checked(*await self._ask(self._requests.bucket("PUT", bucket)))

    async def bucket(self, bucket: str) -> BucketInfo:
        return bucket_info(*await self._ask(self._requests.bucket("GET", bucket)))

    async def delete_bucket(self, bucket: str) -> None:
        checked(*await self._ask(self._requests.bucket("DELETE", bucket)))

    async def streams(
        self, bucket: str, prefix: str = "", *, after: str = "", page_size: int = 1000
    ) -> AsyncIterator[StreamInfo]:
        listing = Listing(self._requests, bucket, prefix, after, page_size)
        while not listing.ended:
            for stream in listing.take(*await self._ask(listing.next_call())):
                yield stream

    # Snapshots

    async def publish_snapshot(
        self,
        bucket: str,
        stream: str,
        offset: Offset,
        content: AsyncContent,
        content_type: str = "application/octet-stream",
    ) -> None:
        """As `Client.publish_snapshot`; `content` may be asynchronously iterable, too."""
        call = self._requests.snapshot("PUT", bucket, stream, offset, _pieces(content))
        call.headers["content-type"] = content_type
        checked(*await self._ask(call))

    async def snapshot_offset(self, bucket: str, stream: str) -> str | None:
        status, headers, body = await self._ask(self._requests.head(bucket, stream))
        checked(status, headers, body)
        return headers.get("stream-snapshot-offset")

    @asynccontextmanager
    async def open_snapshot(self, bucket: str, stream: str) -> AsyncIterator["AsyncOpenSnapshot"]:
        while True:
            status, headers, body = await self._ask(self._requests.latest_snapshot(bucket, stream))
            if status != 307:
                checked(status, headers, body)
            offset = headers["stream-snapshot-offset"]
            async with self._open(self._requests.snapshot("GET", bucket, stream, offset)) as answer:
                if answer.status == 404:
                    continue  # replaced since we were told of it
                checked(answer.status, answer.headers, b"" if answer.status == 200 else await answer.read())
                yield AsyncOpenSnapshot(answer)
                return

    async def snapshot(self, bucket: str, stream: str) -> Snapshot | None:
        try:
            async with self.open_snapshot(bucket, stream) as found:
                data = b"".join([piece async for piece in found])
                return Snapshot(data, found.content_type, found.offset)
        except Refused as problem:
            if problem.code == "SNAPSHOT_NOT_FOUND":
                return None
            raise

    # Bootstrap and tail

    @asynccontextmanager
    async def bootstrap(self, bucket: str, stream: str) -> AsyncIterator["AsyncBootstrap"]:
        async with self._open(self._requests.bootstrap(bucket, stream)) as answer:
            refused = b"" if answer.status == 200 else await answer.read()
            reader = BootstrapReader(answer.status, answer.headers, refused)
            yield AsyncBootstrap(answer, reader, lambda offset: self.tail(bucket, stream, offset))

    async def tail(self, bucket: str, stream: str, offset: Offset) -> AsyncIterator[Message]:
        tail = Tail(self._requests, bucket, stream, offset, self._patience)
        tail.look(*await self._ask(self._requests.head(bucket, stream)))
        while not tail.closed:
            try:
                async with self._wire.send(tail.next_call()) as answer:
                    if tail.streams_events(answer.status, answer.headers):
                        while tail.wants_more and (piece := await answer.read_piece()):
                            for message in tail.feed(piece):
                                yield message
                        tail.ended()
                        continue
                    messages = tail.take(answer.status, answer.headers, await answer.read())
                if messages is not None:
                    for message in messages:
                        yield message
                    continue
            except ConnectionLost:
                pass
            await asyncio.sleep(tail.pause(time.monotonic()))

    # Feed

    def feed(
        self,
        bucket: str,
        *,
        after: int = 0,
        until: int | None = None,
        stream: str | None = None,
        prefix: str | None = None,
        page_bytes: int | None = None,
        live: bool = False,
    ) -> "AsyncFeed":
        state = FeedState(
            self._requests, bucket, after, until, stream, prefix, page_bytes, live, self._patience
        )
        return AsyncFeed(self._wire, state)

    async def feed_range(self, bucket: str) -> FeedRange:
        return feed_range(*await self._ask(self._requests.feed("HEAD", bucket, {})))

    # Life

    async def close(self) -> None:
        await self._wire.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def _open(self, call: Call) -> AsyncIterator[AsyncAnswer]:
        try:
            async with self._wire.send(call) as answer:
                yield answer
        except ConnectionLost as error:
            raise Disconnected(str(error)) from error

    async def _ask(self, call: Call) -> tuple[int, dict[str, str], bytes]:
        async with self._open(call) as answer:
            return answer.status, answer.headers, await answer.read()


class AsyncOpenSnapshot:
    """See `OpenSnapshot`."""

    def __init__(self, answer: AsyncAnswer) -> None:
        self._answer = answer
        self.content_type = answer.headers["content-type"]
        self.offset = answer.headers["stream-snapshot-offset"]
        self.next_offset = answer.headers["stream-next-offset"]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self._answer.read_piece():
            yield piece


class AsyncBootstrap:
    """See `Bootstrap`; here `snapshot` and `messages` are methods, since they wait."""

    def __init__(
        self,
        answer: AsyncAnswer,
        reader: BootstrapReader,
        tail: Callable[[str], AsyncIterator[Message]],
    ) -> None:
        self._answer = answer
        self._reader = reader
        self._tail = tail
        self._waiting: list[Message] = []
        self.next_offset = reader.next_offset
        self.closed = reader.closed

    async def snapshot(self) -> Snapshot | None:
        while not self._reader.begun:
            await self._read()
        return self._reader.snapshot

    async def messages(self) -> AsyncIterator[Message]:
        while True:
            while self._waiting:
                yield self._waiting.pop(0)
            if self._reader.ended:
                return
            await self._read()

    async def tail(self) -> AsyncIterator[Message]:
        async for message in self._tail(self.next_offset):
            self.next_offset = message.next_offset  # now: who stops at it never comes back here
            yield message

    async def _read(self) -> None:
        piece = await self._answer.read_piece()
        self._waiting += self._reader.feed(piece)
        if not piece:
            self._reader.finish()


class AsyncFeed:
    """See `Feed`."""

    def __init__(self, wire: AsyncWire, state: FeedState) -> None:
        self._wire = wire
        self._state = state

    @property
    def position(self) -> int:
        return self._state.position

    @property
    def head(self) -> int:
        return self._state.head

    @property
    def missing(self) -> int:
        return self._state.missing

    async def __aiter__(self) -> AsyncIterator[Any]:
        state = self._state
        while not state.ended:
            call = state.next_call()
            if call is not None and not await self._take(call):
                await asyncio.sleep(state.pause(time.monotonic()))
            while (batch := state.next_batch()) is not None:
                yield batch

    async def read_table(self) -> Any:
        return self._state.table([batch async for batch in self])

    async def _take(self, call: Call) -> bool:
        try:
            async with self._wire.send(call) as answer:
                status, headers, body = answer.status, answer.headers, await answer.read()
        except ConnectionLost:
            return False
        return self._state.take(status, headers, body)


def _pieces(content: AsyncContent) -> bytes | AsyncIterable[bytes]:
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    return content if isinstance(content, AsyncIterable) else _read_pieces(content)


async def _read_pieces(content: IO[bytes] | Iterable[bytes]) -> AsyncIterator[bytes]:
    read = getattr(content, "read", None)
    if read is None:
        for piece in content:
            yield piece
    else:
        while piece := await asyncio.to_thread(read, PIECE_BYTES):
            yield piece
