"""A service on a real store, on a loop that only runs when the test says so, under a clock moved by hand."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from perennial.protocol.append import Append
from perennial.protocol.create import Create
from perennial.protocol.names import DEFAULT_BUCKET
from perennial.protocol.rejections import Rejected
from perennial.protocol.state import StreamState
from perennial.service.handles import Handles, StreamHandle
from perennial.service.reading import Chunk
from perennial.service.sealing import Sealer
from perennial.service.streams import StreamService
from perennial.service.sweeping import Sweeper
from perennial.service.uploads import Upload
from perennial.store.errors import StoreError
from perennial.store.interface import Batch, BucketRow
from perennial.store.rocks import RocksStore
from tests.builders import NOW_MS, append, create, fork

PATIENCE_SECONDS = 20.0


class ObedientStore(RocksStore):
    """A store whose writes and syncs the test can count, hold back, or let fail."""

    def __init__(self, directory: Path) -> None:
        self.writes = 0
        self.syncs = 0
        self.refused = 0
        self.skip_disk = False
        self.fail_writes: StoreError | None = None
        self.fail_syncs: StoreError | None = None
        self._syncing = threading.Semaphore(0)
        self._may_sync = threading.Event()
        self._may_sync.set()
        super().__init__(directory)

    def write(self, batch: Batch) -> None:
        if self.fail_writes is not None:
            self.refused += 1
            raise self.fail_writes
        super().write(batch)
        self.writes += 1

    def begin_sync(self) -> Callable[[], None]:
        return partial(self._obey, super().begin_sync())

    def _obey(self, wait_for_disk: Callable[[], None]) -> None:
        self._syncing.release()
        assert self._may_sync.wait(PATIENCE_SECONDS), "held back and forgotten"
        if self.fail_syncs is not None:
            raise self.fail_syncs
        if not self.skip_disk:
            wait_for_disk()
        self.syncs += 1

    def hold(self) -> None:
        while self._syncing.acquire(blocking=False):
            pass  # syncs of the past
        self._may_sync.clear()

    def release(self) -> None:
        self._may_sync.set()

    def obey_no_more(self) -> None:
        self.fail_writes = self.fail_syncs = None
        self.release()

    def wait_until_syncing(self) -> None:
        assert self._syncing.acquire(timeout=PATIENCE_SECONDS), "nobody asked the disk"


class Answer:
    """What a reply function was told, if it was."""

    def __init__(self) -> None:
        self.given = False
        self.outcome: Any = None
        self.state: StreamState | None = None

    def __call__(self, outcome: Any, state: StreamState | None) -> None:
        assert not self.given, "answered twice"
        self.given, self.outcome, self.state = True, outcome, state

    @property
    def refused(self) -> bool:
        return self.given and isinstance(self.outcome, Rejected)

    @property
    def tail(self) -> int:
        assert self.state is not None
        return self.state.tail


class Audience:
    """Tells every answer of a plain append by itself."""

    def stored(self, waiting: Iterable[tuple[Answer, StreamState]]) -> None:
        for answer, state in waiting:
            answer(None, state)

    def refused(self, waiting: Iterable[tuple[Answer, StreamState]], why: Rejected) -> None:
        for answer, state in waiting:
            answer(why, state)


AUDIENCE = Audience()


class Reader:
    """A live reader that notes how often it was woken."""

    def __init__(self) -> None:
        self.woken = 0

    def broken(self) -> None:
        raise AssertionError("its changed() does not fail")

    def changed(self) -> None:
        self.woken += 1


class World:
    def __init__(self, directory: Path, handles: int | None = None) -> None:
        self.directory = directory
        self.now_ms = NOW_MS
        self._handle_limit = handles
        self.loop = asyncio.new_event_loop()
        self._open()

    def _open(self) -> None:
        self.store = ObedientStore(self.directory)
        self.service = self.loop.run_until_complete(self._make_service())
        if self._handle_limit is not None:
            self.service.handles = Handles(self.store, self._handle_limit)
        self.sweeper = Sweeper(self.service)
        self.sealer = Sealer(self.store)
        self.service.on_growth = self.sealer.grew

    async def _make_service(self) -> StreamService:
        return StreamService(self.store, lambda: self.now_ms * 1000)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.obey_no_more()
        try:
            self.loop.run_until_complete(self.service.close())
        finally:
            self.loop.close()

    def restart(self) -> None:
        """Close in order and open again, as after a stop of the server."""
        self.loop.run_until_complete(self.service.close())
        self._open()

    # Time

    def settle(self) -> None:
        """Everything accepted so far becomes durable, or fails."""
        self.loop.run_until_complete(self.service.committer.settle())

    def turn(self) -> None:
        """The loop takes one turn: what was scheduled runs, nothing is waited for."""
        self.loop.run_until_complete(asyncio.sleep(0))

    def wait(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)

    @contextmanager
    def held_disk(self) -> Iterator[None]:
        """Syncs begin and do not end while the block runs."""
        self.settle()
        self.store.hold()
        try:
            yield
        finally:
            self.store.release()

    def until_on_its_way(self) -> None:
        """The open commit has been written and waits for the (held) disk."""
        self.turn()
        self.store.wait_until_syncing()

    # Commands: sent and left, or sent and waited for

    def send(self, name: str, command: Append | Create | None, bucket: str = DEFAULT_BUCKET) -> Answer:
        answer = Answer()
        if isinstance(command, Append):
            self.service.append(bucket, name, command, answer)
        elif isinstance(command, Create):
            self.service.create(bucket, name, command, answer)
        else:
            self.service.delete(bucket, name, answer)
        return answer

    def do(self, name: str, command: Append | Create | None) -> Answer:
        answer = self.send(name, command)
        self.settle()
        assert answer.given
        return answer

    def create(self, name: str = "s", **settings: Any) -> Answer:
        return self.done(self.do(name, create(**settings)))

    def append(self, name: str = "s", body: bytes = b"x", **settings: Any) -> Answer:
        handle = self.service.find(DEFAULT_BUCKET, name)
        if handle is not None and handle.accepted is not None:
            settings.setdefault("content_type", handle.accepted.content_type)
        return self.done(self.do(name, append(body, **settings)))

    def fork(self, name: str, source: str, offset: int | None = None, **settings: Any) -> Answer:
        return self.done(self.do(name, fork(source, offset, **settings)))

    def delete(self, name: str = "s") -> Answer:
        return self.done(self.do(name, None))

    @staticmethod
    def done(answer: Answer) -> Answer:
        assert not answer.refused, answer.outcome
        return answer

    # What can be seen

    def handle(self, name: str = "s") -> StreamHandle | None:
        return self.service.find(DEFAULT_BUCKET, name)

    def visible(self, name: str = "s") -> StreamState | None:
        """What a reader may know."""
        handle = self.service.look_up(DEFAULT_BUCKET, name)
        return None if handle is None else handle.visible

    def exists(self, name: str = "s") -> bool:
        state = self.visible(name)
        return state is not None and not state.soft_deleted

    def new_upload(self, name: str = "s") -> Upload:
        """Room for a snapshot of the stream that has this name now, if any; not judged yet."""
        handle = self.service.find(DEFAULT_BUCKET, name)
        stream_id = 0 if handle is None or handle.accepted is None else handle.accepted.id
        return Upload(self.service.store, self.service.committer.new_id(), stream_id)

    def publish(self, offset: int, body: bytes = b"state", name: str = "s") -> Answer:
        upload = self.new_upload(name)
        upload.feed(body)
        answer = Answer()
        self.service.publish(DEFAULT_BUCKET, name, offset, "text/plain", upload, answer)
        return answer

    def read(self, name: str = "s", start: int = 0, limit: int = 1 << 30) -> bytes:
        return b"".join(self.chunk(name, start, limit).pieces)

    def chunk(self, name: str = "s", start: int = 0, limit: int = 1 << 30) -> Chunk:
        handle = self.service.look_up(DEFAULT_BUCKET, name)
        assert handle is not None
        chunk = self.service.read(handle, start, limit)
        assert isinstance(chunk, Chunk), chunk
        assert sum(map(len, chunk.pieces)) == chunk.end - chunk.start
        return chunk

    def touch(self, name: str = "s") -> None:
        """As a successful read does."""
        handle = self.handle(name)
        assert handle is not None
        self.service.touch(handle)

    @property
    def bucket(self) -> BucketRow:
        row = self.service.buckets.get(DEFAULT_BUCKET)
        assert row is not None
        return row

    # Background work

    def sweep(self) -> None:
        while self.sweeper.step():
            self.settle()
        self.settle()

    def seal(self) -> None:
        while self.sealer.step():
            pass

    def collect_garbage(self) -> None:
        while self.store.collect_garbage(lambda number: False):
            pass

    def stored_blocks(self, stream_id: int) -> int:
        return sum(1 for _ in self.store.blocks(stream_id, 0, 1 << 50))
