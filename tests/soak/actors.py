"""Actors that need more than one connection or more than one act: expiry, events, proxied responses."""

import time
from collections import deque
from urllib.parse import urlsplit

from perennial.protocol.frames import FrameParser, FrameType
from tests.durability.actors import ROOT, TEXT, Actor, look, put, read_all
from tests.harness.server import ServerProcess
from tests.harness.wire import Wire
from tests.proxy.harness import Kept
from tests.upstream import Reply, Upstream

TTL_SECONDS = 1
# A window is up to a tenth longer after a crash, and the sweeper is not needed for it to count.
SURELY_GONE_SECONDS = 2.5


class Expirer(Actor):
    """Creates streams that live for a second: not less, and not much more."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name, seed)
        self._number = 0
        self._waiting: deque[tuple[str, float]] = deque()

    def prepare(self, http: Wire) -> None:
        assert put(http, f"{self.name}/stays", TEXT | {"Stream-TTL": "86400"}, b"x").status == 201

    def act(self, http: Wire) -> None:
        self._number += 1
        name = f"{self.name}/{self._number}"
        began = time.monotonic()
        assert put(http, name, TEXT | {"Stream-TTL": str(TTL_SECONDS)}, b"soon gone").status == 201
        # It is not touched again before it must have gone: looking at it may restart its window.
        if self.chance.random() < 0.2:
            status = look(http, name).status
            assert status == 200 or time.monotonic() - began >= TTL_SECONDS, "gone before its time"
        self._waiting.append((name, time.monotonic()))
        while self._waiting and time.monotonic() - self._waiting[0][1] > SURELY_GONE_SECONDS:
            old, _ = self._waiting.popleft()
            assert look(http, old).status == 404, f"{old} should be gone"

    def verify(self, http: Wire) -> None:
        if self._waiting:
            time.sleep(max(0.0, self._waiting[-1][1] + SURELY_GONE_SECONDS - time.monotonic()))
        for name, _ in self._waiting:
            assert look(http, name).status == 404, f"{name} should be gone"
        self._waiting.clear()
        assert read_all(http, f"{self.name}/stays") == b"x"


class EventReader(Actor):
    """Follows a stream by server-sent events, hanging up and coming back."""

    def __init__(self, name: str, seed: int, stream: str, server: ServerProcess) -> None:
        super().__init__(name, seed)
        self.stream = stream
        self.seen = b""
        self._server = server

    def prepare(self, http: Wire) -> None:
        assert put(http, self.stream, TEXT).status in (200, 201)

    def act(self, http: Wire) -> None:
        with Wire(self._server.port) as wire:
            wire.ask("GET", f"{ROOT}{self.stream}?offset={len(self.seen):016d}&live=sse")
            status, _ = wire.head()
            assert status == 200
            arrived = b""
            for count, event in enumerate(wire.events()):
                if event.kind == "data":
                    arrived += event.data.encode()
                else:
                    # Only what a control event has confirmed counts: data may be cut off in between.
                    self.seen += arrived
                    arrived = b""
                    assert int(event.control["streamNextOffset"]) == len(self.seen)
                    if count > 20:
                        return

    def verify(self, http: Wire) -> None:
        content = read_all(http, self.stream)
        assert content.startswith(self.seen), "something that was seen is gone"


class Caller(Actor):
    """Sends requests through the proxy: what was kept of a response stays, and ends once."""

    def __init__(self, name: str, seed: int, upstream: Upstream) -> None:
        super().__init__(name, seed)
        self._upstream = upstream
        self._kept: deque[tuple[str, bytes, bytes]] = deque(maxlen=40)  # target, whole body, seen so far

    def act(self, http: Wire) -> None:
        chunks = [f"{self.name} chunk {n}\n".encode() * 20 for n in range(self.chance.randint(1, 6))]
        steps = [step for chunk in chunks for step in (chunk, 0.02)]
        url = self._upstream.on(f"/allowed/{self.name}/{self.chance.getrandbits(60)}", Reply(steps))
        answer = http.request("POST", "/v1/proxy", {"Upstream-URL": url, "Upstream-Method": "GET"})
        assert answer.status == 201, answer
        parts = urlsplit(answer.headers["location"])
        target = f"{parts.path}?{parts.query}"
        self._kept.append((target, b"".join(chunks), b""))
        if self.chance.random() < 0.5:
            time.sleep(0.05)
        kept, _ = self._read(http, target)
        self._kept[-1] = (target, b"".join(chunks), kept)

    def verify(self, http: Wire) -> None:
        for target, whole, seen in self._kept:
            for _ in range(100):
                body, ending = self._read(http, target)
                if ending is not None:
                    break
                time.sleep(0.05)
            else:
                raise AssertionError("a response without an end")
            assert body.startswith(seen), "something that was read is gone"
            assert whole.startswith(body), "something was added"
            assert ending in (FrameType.COMPLETE, FrameType.ERROR)
            if ending is FrameType.COMPLETE:
                assert body == whole

    def _read(self, http: Wire, target: str) -> tuple[bytes, FrameType | None]:
        answer = http.request("GET", f"{target}&offset=-1")
        assert answer.status == 200, answer
        frames = FrameParser().feed(answer.body)
        if not frames:
            return b"", None
        kept = Kept(frames)
        return kept.body, kept.ending
