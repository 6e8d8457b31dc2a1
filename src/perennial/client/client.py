"""Buckets, snapshots, bootstrap and feeds, blocking.

    with Client("http://127.0.0.1:4437") as client:
        client.create_bucket("agents")
        for stream in client.streams("agents", prefix="user-"):
            …
        with client.bootstrap("agents", "user-1") as boot:
            state = fold(boot.snapshot, boot.messages)
            for message in boot.tail():
                …
        for batch in client.feed("agents", after=position, live=True):
            …

For appending to streams and reading them, use the `durable-streams` package.
"""

import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Any, Self

from perennial.client.bootstrapping import BootstrapReader
from perennial.client.calls import Call
from perennial.client.errors import Disconnected, Refused
from perennial.client.feeds import FeedState
from perennial.client.messages import BucketInfo, FeedRange, Message, Snapshot, StreamInfo
from perennial.client.requests import DEFAULT_URL, Listing, Offset, Requests, bucket_info, checked, feed_range
from perennial.client.tailing import Tail
from perennial.client.wire import Answer, ConnectionLost, Wire

READ_TIMEOUT_SECONDS = 120.0
PATIENCE_SECONDS = 60.0
PIECE_BYTES = 1 << 20

Content = bytes | IO[bytes] | Iterable[bytes]


class Client:
    """One server. May be used from several threads; what it returns may not be shared between them.

    `url` is that of the server, or `unix:/run/perennial.sock` for one on a Unix socket.
    `patience` is how many seconds a tail or a live feed puts up with a server that cannot be reached.
    """

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
        self._wire = Wire(timeout, ssl_context, self._requests.address.socket)
        self._patience = patience

    # Buckets

    def create_bucket(self, bucket: str) -> None:
        checked(*self._ask(self._requests.bucket("PUT", bucket)))

    def bucket(self, bucket: str) -> BucketInfo:
        return bucket_info(*self._ask(self._requests.bucket("GET", bucket)))

    def delete_bucket(self, bucket: str) -> None:
        checked(*self._ask(self._requests.bucket("DELETE", bucket)))

    def streams(
        self, bucket: str, prefix: str = "", *, after: str = "", page_size: int = 1000
    ) -> Iterator[StreamInfo]:
        """All streams of a bucket by name; pages are asked for as the iteration gets there."""
        listing = Listing(self._requests, bucket, prefix, after, page_size)
        while not listing.ended:
            yield from listing.take(*self._ask(listing.next_call()))

    # Snapshots

    def publish_snapshot(
        self,
        bucket: str,
        stream: str,
        offset: Offset,
        content: Content,
        content_type: str = "application/octet-stream",
    ) -> None:
        """`content` stands for everything before `offset`, which is then no longer kept.

        It may be bytes, a file opened for reading, or an iterable of bytes that is sent as it comes.
        """
        call = self._requests.snapshot("PUT", bucket, stream, offset, _pieces(content))
        call.headers["content-type"] = content_type
        checked(*self._ask(call))

    def snapshot_offset(self, bucket: str, stream: str) -> str | None:
        """Where the latest snapshot stands; None if there is none."""
        status, headers, body = self._ask(self._requests.head(bucket, stream))
        checked(status, headers, body)
        return headers.get("stream-snapshot-offset")

    @contextmanager
    def open_snapshot(self, bucket: str, stream: str) -> Iterator["OpenSnapshot"]:
        """The latest snapshot, to be read piece by piece."""
        while True:
            status, headers, body = self._ask(self._requests.latest_snapshot(bucket, stream))
            if status != 307:
                checked(status, headers, body)
            offset = headers["stream-snapshot-offset"]
            with self._send(self._requests.snapshot("GET", bucket, stream, offset)) as answer:
                if answer.status == 404:
                    continue  # replaced since we were told of it
                checked(answer.status, answer.headers, b"" if answer.status == 200 else answer.read())
                yield OpenSnapshot(answer)
                return

    def snapshot(self, bucket: str, stream: str) -> Snapshot | None:
        """The latest snapshot, whole; None if there is none."""
        try:
            with self.open_snapshot(bucket, stream) as found:
                return Snapshot(b"".join(found), found.content_type, found.offset)
        except Refused as problem:
            if problem.code == "SNAPSHOT_NOT_FOUND":
                return None
            raise

    # Bootstrap and tail

    @contextmanager
    def bootstrap(self, bucket: str, stream: str) -> Iterator["Bootstrap"]:
        with self._send(self._requests.bootstrap(bucket, stream)) as answer:
            reader = BootstrapReader(
                answer.status, answer.headers, b"" if answer.status == 200 else answer.read()
            )
            yield Bootstrap(answer, reader, lambda offset: self.tail(bucket, stream, offset))

    def tail(self, bucket: str, stream: str, offset: Offset) -> Iterator[Message]:
        """What comes from `offset` on, until the stream is closed. Lost connections are taken up again.

        A `Refused` with status 410 means that a snapshot has overtaken the offset: bootstrap again.
        """
        tail = Tail(self._requests, bucket, stream, offset, self._patience)
        tail.look(*self._ask(self._requests.head(bucket, stream)))
        while not tail.closed:
            try:
                with self._wire.send(tail.next_call()) as answer:
                    if tail.streams_events(answer.status, answer.headers):
                        while tail.wants_more and (piece := answer.read_piece()):
                            yield from tail.feed(piece)
                        tail.ended()
                        continue
                    messages = tail.take(answer.status, answer.headers, answer.read())
                if messages is not None:
                    yield from messages
                    continue
            except ConnectionLost:
                pass
            time.sleep(tail.pause(time.monotonic()))

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
    ) -> "Feed":
        """Everything committed to a bucket behind a position, up to now or, `live`, for ever."""
        state = FeedState(
            self._requests, bucket, after, until, stream, prefix, page_bytes, live, self._patience
        )
        return Feed(self._wire, state)

    def feed_range(self, bucket: str) -> FeedRange:
        return feed_range(*self._ask(self._requests.feed("HEAD", bucket, {})))

    # Life

    def close(self) -> None:
        self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, call: Call) -> Answer:
        try:
            return self._wire.send(call)
        except ConnectionLost as error:
            raise Disconnected(str(error)) from error

    def _ask(self, call: Call) -> tuple[int, dict[str, str], bytes]:
        try:
            with self._wire.send(call) as answer:
                return answer.status, answer.headers, answer.read()
        except ConnectionLost as error:
            raise Disconnected(str(error)) from error


class OpenSnapshot:
    """A snapshot on its way in: iterate it for its bytes."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.content_type = answer.headers["content-type"]
        self.offset = answer.headers["stream-snapshot-offset"]
        self.next_offset = answer.headers["stream-next-offset"]

    def __iter__(self) -> Iterator[bytes]:
        try:
            while piece := self._answer.read_piece():
                yield piece
        except ConnectionLost as error:
            raise Disconnected(str(error)) from error


class Bootstrap:
    """The beginning of a stream as it is kept: a snapshot, then messages. Then `tail` goes on from there.

    `snapshot` is None if there is none. `messages` is read as it is iterated, once.
    """

    def __init__(self, answer: Answer, reader: BootstrapReader, tail: Any) -> None:
        self._answer = answer
        self._reader = reader
        self._tail = tail
        self._waiting: list[Message] = []
        self.next_offset = reader.next_offset
        self.closed = reader.closed

    @property
    def snapshot(self) -> Snapshot | None:
        while not self._reader.begun:
            self._read()
        return self._reader.snapshot

    @property
    def messages(self) -> Iterator[Message]:
        while True:
            while self._waiting:
                yield self._waiting.pop(0)
            if self._reader.ended:
                return
            self._read()

    def tail(self) -> Iterator[Message]:
        """What comes after the bootstrap; `next_offset` is behind the last message, to go on elsewhere."""
        for message in self._tail(self.next_offset):
            self.next_offset = message.next_offset  # now: who stops at it never comes back here
            yield message

    def _read(self) -> None:
        try:
            piece = self._answer.read_piece()
        except ConnectionLost as error:
            raise Disconnected(str(error)) from error
        self._waiting += self._reader.feed(piece)
        if not piece:
            self._reader.finish()


class Feed:
    """Iterate it for `pyarrow.RecordBatch`es, or `read_table` what there is.

    Store `position` with what you made of a batch, and begin there the next time. `missing` counts the rows
    that were there and had been trimmed or deleted before they were read (not when the feed is filtered).
    """

    def __init__(self, wire: Wire, state: FeedState) -> None:
        self._wire = wire
        self._state = state

    @property
    def position(self) -> int:
        return self._state.position

    @property
    def head(self) -> int:
        """The newest position when the last page came."""
        return self._state.head

    @property
    def missing(self) -> int:
        return self._state.missing

    def __iter__(self) -> Iterator[Any]:
        state = self._state
        while not state.ended:
            call = state.next_call()
            if call is not None and not self._take(call):
                time.sleep(state.pause(time.monotonic()))
            while (batch := state.next_batch()) is not None:
                yield batch

    def read_table(self) -> Any:
        """All up to the head as one `pyarrow.Table`."""
        return self._state.table(list(self))

    def _take(self, call: Call) -> bool:
        try:
            with self._wire.send(call) as answer:
                status, headers, body = answer.status, answer.headers, answer.read()
        except ConnectionLost:
            return False
        return self._state.take(status, headers, body)


def _pieces(content: Content) -> bytes | Iterable[bytes]:
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    read = getattr(content, "read", None)
    return content if read is None else iter(lambda: read(PIECE_BYTES), b"")
