"""Bootstrap, then tail, is the whole history folded: whatever was appended, forked, folded, deleted, and
wherever the process died. And the feed has exactly what no snapshot or deletion has taken away.

A crash is played by opening a copy of the files as they lie there, while the service that wrote them runs on.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perennial.protocol.names import DEFAULT_BUCKET
from perennial.protocol.rejections import Rejected
from perennial.service import feed_sealing
from perennial.service.feed import END_OF_TIME, StreamFilter
from perennial.service.feed_sealing import FeedSealer
from perennial.service.reading import messages_between
from perennial.store.feedlog import INLINE_LIMIT
from tests.builders import BYTES, JSON, append, create, fork
from tests.properties import profiles
from tests.service.world import Answer, World

NAMES = ("a", "b", "c", "d")

sizes = st.sampled_from([1, 2, 3, 10, INLINE_LIMIT + 1])


def copy_as_it_lies(source: Path, target: Path) -> None:
    """All files as they are at one moment: again, if RocksDB has tidied up meanwhile."""

    def listing() -> dict[Path, tuple[int, int]]:
        files = {path: path.stat() for path in source.rglob("*") if path.is_file()}
        return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in files.items()}

    while True:
        try:
            before = listing()
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("LOCK", "LOG*"))
            if listing() == before:
                return
        except (shutil.Error, FileNotFoundError):
            pass
        shutil.rmtree(target, ignore_errors=True)


class Stream:
    """What a stream is known to hold: `history` is all its messages, `folded` how many a snapshot stands
    for."""

    def __init__(self, content_type: str, history: list[bytes]) -> None:
        self.content_type = content_type
        self.history = history
        self.inherited = len(history)
        self.folded = 0
        self.snapshot: bytes | None = None
        self.closed = False

    def offset(self, count: int) -> int:
        return sum(map(len, self.history[:count]))

    def copy(self) -> "Stream":
        made = Stream(self.content_type, list(self.history))
        made.__dict__.update(self.__dict__ | {"history": list(self.history)})
        return made


def fold(messages: list[bytes]) -> bytes:
    return json.dumps([message.decode("latin-1") for message in messages]).encode()


def unfold(snapshot: bytes) -> list[bytes]:
    return [message.encode("latin-1") for message in json.loads(snapshot)]


class Bootstraps(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="bootstrap-"))
        self.crashes = 0
        self.count = 0
        self.streams: dict[str, Stream] = {}

    @initialize()
    def open(self) -> None:
        self.world = self._open(self.root / "0")

    def teardown(self) -> None:
        try:
            self.world.__exit__(None, None, None)
        finally:
            shutil.rmtree(self.root)

    # What happens

    @rule(name=st.sampled_from(NAMES), json=st.booleans(), messages=st.lists(sizes, max_size=3))
    def create(self, name: str, json: bool, messages: list[int]) -> None:
        if name in self.streams:
            return
        content_type = JSON if json else BYTES
        body = self._messages(content_type, messages if json else messages[:1])
        answer = self.world.do(name, create(self._body(content_type, body), content_type))
        if isinstance(answer.outcome, Rejected):
            return  # a deleted stream that forks need still has this name
        made = self.streams[name] = Stream(content_type, [])
        made.history += body

    @rule(name=st.sampled_from(NAMES), messages=st.lists(sizes, min_size=1, max_size=4), closes=st.booleans())
    def append(self, name: str, messages: list[int], closes: bool) -> None:
        self._settle(*self._append(name, messages, closes))

    @rule(name=st.sampled_from(NAMES), at=st.floats(0, 1))
    def publish(self, name: str, at: float) -> None:
        self._settle(*self._publish(name, at))

    @rule(source=st.sampled_from(NAMES), name=st.sampled_from(NAMES), at=st.floats(0, 1))
    def fork(self, source: str, name: str, at: float) -> None:
        self._settle(*self._fork(source, name, at))

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self._settle(*self._delete(name))

    @rule()
    def housekeep(self) -> None:
        self.world.seal()
        self.world.collect_garbage()
        while self.sealer.step():
            pass

    @rule()
    def restart(self) -> None:
        self.world.restart()
        self._attach(self.world)

    @precondition(lambda self: self.streams)
    @rule(
        what=st.sampled_from(["append", "publish", "fork", "delete"]),
        name=st.sampled_from(NAMES),
        other=st.sampled_from(NAMES),
        messages=st.lists(sizes, min_size=1, max_size=3),
        at=st.floats(0, 1),
        written=st.booleans(),
    )
    def crash(self, what: str, name: str, other: str, messages: list[int], at: float, written: bool) -> None:
        """In the middle of something that nobody has been told of: before or after it was written."""
        before = {each: stream.copy() for each, stream in self.streams.items()}
        with self.world.held_disk():
            if what == "append":
                _, change = self._append(name, messages, closes=False)
            elif what == "publish":
                _, change = self._publish(name, at)
            elif what == "fork":
                _, change = self._fork(name, other, at)
            else:
                _, change = self._delete(name)
            if written and change is not None:
                self.world.until_on_its_way()
            self.crashes += 1
            copy = self.root / str(self.crashes)
            copy_as_it_lies(self.world.directory, copy)
        self.world.__exit__(None, None, None)
        self.world = self._open(copy)
        if change is not None:
            if written:
                change()
            else:
                self.streams = before

    # What must hold

    @invariant()
    def bootstrap_and_tail_are_the_history(self) -> None:
        if not hasattr(self, "world"):
            return
        for name, stream in self.streams.items():
            state = self.world.visible(name)
            assert state is not None
            assert not state.soft_deleted
            assert state.tail == stream.offset(len(stream.history))
            assert state.earliest == stream.offset(stream.folded)
            assert state.closed == stream.closed
            snapshot = self._snapshot(state)
            assert snapshot == stream.snapshot
            messages = messages_between(self.world.store, state, state.earliest, state.tail)
            folded = [] if snapshot is None else unfold(snapshot)
            assert folded + [bytes(message) for message in messages] == stream.history
            self._check_tail(name, stream)
        for name in set(NAMES) - self.streams.keys():
            assert not self.world.exists(name)

    @invariant()
    def the_feed_is_what_is_left(self) -> None:
        if not hasattr(self, "world"):
            return
        rows: dict[str, list[tuple[int, int]]] = {}
        positions = []
        feed = self.world.service.feed
        for block in feed.page(DEFAULT_BUCKET, 0, END_OF_TIME, StreamFilter(), 1 << 30):
            names = list(block.table.each_name())
            keep = [True] * len(block.positions) if block.keep is None else block.keep.tolist()
            for index, kept in enumerate(keep):
                if kept and block.is_data[index]:
                    row = (int(block.offsets[index]), int(block.lengths[index]))
                    rows.setdefault(names[block.streams[index]].decode(), []).append(row)
                if kept:
                    positions.append(int(block.positions[index]))
        assert positions == sorted(set(positions))
        expected = {}
        for name, stream in self.streams.items():
            first = max(stream.inherited, stream.folded)
            own = [(stream.offset(n), len(stream.history[n])) for n in range(first, len(stream.history))]
            if own:
                expected[name] = own
        assert rows == expected

    def _check_tail(self, name: str, stream: Stream) -> None:
        """From every boundary that is kept, ordinary reads give the rest."""
        for count in {stream.folded, (stream.folded + len(stream.history)) // 2, len(stream.history)}:
            tail = b"".join(self.world.chunk(name, stream.offset(count)).pieces)
            assert tail == b"".join(stream.history[count:])

    # Steps: each sends a command, and returns its answer and what it means once it has happened

    def _append(self, name: str, sizes: list[int], closes: bool) -> tuple[Answer | None, Any]:
        stream = self.streams.get(name)
        if stream is None or stream.closed:
            return None, None
        messages = self._messages(stream.content_type, sizes if stream.content_type == JSON else sizes[:1])
        closes = closes and len(stream.history) % 3 == 0
        body = self._body(stream.content_type, messages)
        command = append(body, content_type=stream.content_type, close=closes)

        def change() -> None:
            self.streams[name].history += messages
            self.streams[name].closed = closes

        return self.world.send(name, command), change

    def _publish(self, name: str, at: float) -> tuple[Answer | None, Any]:
        stream = self.streams.get(name)
        if stream is None:
            return None, None
        count = stream.folded + int(at * (len(stream.history) - stream.folded))
        snapshot = fold(stream.history[:count])
        service = self.world.service
        upload = self.world.new_upload(name)
        for start in range(0, len(snapshot), 1000):
            upload.feed(snapshot[start : start + 1000])
        answer = Answer()
        service.publish(DEFAULT_BUCKET, name, stream.offset(count), JSON, upload, answer)

        def change() -> None:
            self.streams[name].folded, self.streams[name].snapshot = count, snapshot

        return answer, change

    def _fork(self, source: str, name: str, at: float) -> tuple[Answer | None, Any]:
        stream = self.streams.get(source)
        if stream is None or name in self.streams or self.world.handle(name) is not None:
            return None, None
        count = stream.folded + int(at * (len(stream.history) - stream.folded))
        answer = self.world.send(name, fork(source, stream.offset(count)))

        def change() -> None:
            made = self.streams[name] = Stream(stream.content_type, stream.history[:count])
            made.folded, made.snapshot = stream.folded, stream.snapshot

        return answer, change

    def _delete(self, name: str) -> tuple[Answer | None, Any]:
        if name not in self.streams:
            return None, None
        return self.world.send(name, None), lambda: self.streams.pop(name)

    def _settle(self, answer: Answer | None, change: Any) -> None:
        if answer is not None:
            self.world.settle()
            assert answer.given
            assert not answer.refused, answer.outcome
            change()

    def _messages(self, content_type: str, sizes: list[int]) -> list[bytes]:
        """No two alike, so that nothing can be taken for something else."""
        messages = []
        for size in sizes:
            self.count += 1
            text = f"{self.count}".rjust(size, "7")
            messages.append(text.encode() if content_type == BYTES else f'"{text}"'.encode())
        return messages

    def _body(self, content_type: str, messages: list[bytes]) -> bytes:
        return b"".join(messages) if content_type == BYTES else b"[" + b",".join(messages) + b"]"

    def _snapshot(self, state: Any) -> bytes | None:
        if state.snapshot is None:
            return None
        pieces: list[bytes] = []
        while sum(map(len, pieces)) < state.snapshot.size:
            piece = self.world.store.piece(state.snapshot.blob, len(pieces))
            assert piece is not None, "a published snapshot is complete"
            pieces.append(piece)
        return b"".join(pieces)

    def _open(self, directory: Path) -> World:
        world = World(directory)
        world.store.skip_disk = True
        self._attach(world)
        return world

    def _attach(self, world: World) -> None:
        world.store.skip_disk = True
        service = world.service
        self.sealer = FeedSealer(world.store, service.buckets, service.feed, service.graves)
        service.feed.on_growth = self.sealer.grew


@pytest.fixture(autouse=True)
def _eager_sealing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes hundreds of commits in life happens after a few."""
    monkeypatch.setattr(feed_sealing, "UNSEALED_VALUES", 3)
    monkeypatch.setattr(feed_sealing, "MANY_GRAVES", 2)


profiles.load()
TestBootstraps = Bootstraps.TestCase
# Each example opens a store, and another one for every crash.
TestBootstraps.settings = settings(max_examples=settings().max_examples // 12)
