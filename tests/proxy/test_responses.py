"""Response writers against a disk that fails or lags, in one process (sections 9.2, 12.4)."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from perennial.protocol.frames import FrameParser, FrameType, parse_failure
from perennial.protocol.names import PROXY_BUCKET
from perennial.proxy import responses
from perennial.proxy.allowlist import parse_upstream_url
from perennial.proxy.errors import StorageFailed
from perennial.proxy.operations import Forward, Proxy
from perennial.service.reading import Chunk
from perennial.service.streams import StreamService
from perennial.settings import Settings
from perennial.store.errors import StoreFull
from perennial.store.rocks import RocksStore
from tests.upstream import HANG, Reply, Upstream

SETTINGS: dict[str, Any] = {"proxy_allow": ("http://127.0.0.1:*/**",), "proxy_allow_private": True}


class Bench:
    """A proxy over a store whose writes can be made to fail or to wait."""

    def __init__(self, data: Path, upstream: Upstream) -> None:
        self.upstream = upstream
        self.store = RocksStore(data)
        self.full = False
        write = self.store.write

        def maybe_write(batch: Any) -> None:
            if self.full:
                raise StoreFull("no space left: /somewhere")
            write(batch)

        self.store.write = maybe_write  # type: ignore[method-assign]
        self.service = StreamService(self.store)
        self.proxy = Proxy(self.service, Settings(data=str(data), **SETTINGS))

    def forward(self, reply: Reply, path: str = "/x") -> Forward:
        url = parse_upstream_url(self.upstream.on(path, reply))
        return Forward("GET", url, [], b"", "me")

    def frames(self, stream_id: str) -> list[tuple[FrameType, int, bytes]]:
        handle = self.service.find(PROXY_BUCKET, stream_id)
        assert handle is not None
        chunk = self.service.read(handle, 0, 10**9)
        assert isinstance(chunk, Chunk)
        found = FrameParser().feed(b"".join(chunk.pieces))
        return [(frame.type, frame.response_id, frame.payload) for frame in found]

    async def ended(self, stream_id: str) -> list[tuple[FrameType, int, bytes]]:
        async with asyncio.timeout(20):
            for _ in range(2000):
                if stream_id in self.proxy._active:
                    await asyncio.sleep(0.01)
        return self.frames(stream_id)

    async def close(self) -> None:
        self.full = False
        await self.proxy.stop()
        await self.service.close()


def run(tmp_path: Path, upstream: Upstream, test: Callable[[Bench], Awaitable[None]]) -> None:
    async def inside() -> None:
        bench = Bench(tmp_path / "data", upstream)
        try:
            await test(bench)
        finally:
            await bench.close()

    asyncio.run(inside())


def test_a_create_that_cannot_be_stored_is_a_storage_error(tmp_path: Path, upstream: Upstream) -> None:
    """12.4: STORAGE_ERROR: failed to create or write to the durable stream backend."""

    async def test(bench: Bench) -> None:
        bench.full = True
        with pytest.raises(StorageFailed):
            await bench.proxy.create(bench.forward(Reply([b"x", HANG])))
        with pytest.raises(StorageFailed):
            await bench.proxy.connect("3f2c5a1e-0000-5000-8000-000000000000", None)
        bench.full = False
        opened = await bench.proxy.create(bench.forward(Reply([b"x"])))
        assert opened.response_id == 1
        assert [kind for kind, _, _ in await bench.ended(opened.stream_id)][-1] is FrameType.COMPLETE
        assert len(list(bench.store.proxy_rows(b"o"))) == 0

    run(tmp_path, upstream, test)


def test_an_append_that_failed_leaves_its_id_to_the_next(tmp_path: Path, upstream: Upstream) -> None:
    async def test(bench: Bench) -> None:
        opened = await bench.proxy.create(bench.forward(Reply([b"x", HANG])))
        bench.full = True
        with pytest.raises(StorageFailed):
            await bench.proxy.append(opened.stream_id, bench.forward(Reply([b"y"])))
        bench.full = False
        again = await bench.proxy.append(opened.stream_id, bench.forward(Reply([b"z"])))
        assert again.response_id == 2

    run(tmp_path, upstream, test)


def test_a_disk_that_fails_in_the_middle_ends_the_response(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5.2, 9.2: an Error frame with STORAGE_ERROR, as soon as the disk takes one, and only one."""
    monkeypatch.setattr(responses, "RETRY_SECONDS", 0.05)

    async def test(bench: Bench) -> None:
        forward = bench.forward(Reply([b"kept", 0.3, b"lost", 0.3, b"never read", HANG]))
        opened = await bench.proxy.create(forward)
        await asyncio.sleep(0.15)
        bench.full = True
        assert await asyncio.to_thread(bench.upstream.wait_for("/x").peer_gone.wait, 10)
        await asyncio.sleep(0.3)
        assert opened.stream_id in bench.proxy._active
        bench.full = False
        frames = await bench.ended(opened.stream_id)
        assert [kind for kind, _, _ in frames] == [FrameType.START, FrameType.DATA, FrameType.ERROR]
        assert frames[1][2] == b"kept"
        assert b"STORAGE_ERROR" in frames[2][2]
        assert b"somewhere" not in frames[2][2]

    run(tmp_path, upstream, test)


def test_last_words_are_repeated_until_the_disk_takes_them(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "RETRY_SECONDS", 0.05)

    async def test(bench: Bench) -> None:
        opened = await bench.proxy.create(bench.forward(Reply([b"all of it", HANG])))
        await asyncio.sleep(0.15)
        bench.full = True
        with pytest.raises(StorageFailed):
            await bench.proxy.abort(opened.stream_id)
        bench.full = False
        frames = await bench.ended(opened.stream_id)
        assert [kind for kind, _, _ in frames] == [FrameType.START, FrameType.DATA, FrameType.ABORT]

    run(tmp_path, upstream, test)


def test_a_slow_disk_holds_the_upstream_back(tmp_path: Path, upstream: Upstream) -> None:
    """9.2: memory stays bounded: what the disk does not take yet is not read from the upstream either."""

    async def test(bench: Bench) -> None:
        held = asyncio.Event()
        committer = bench.service.committer
        synced = committer._synced
        waiting: list[Any] = []

        def hold(failure: Any) -> None:
            if held.is_set():
                waiting.append(failure)
            else:
                synced(failure)

        committer._synced = hold  # type: ignore[method-assign]
        opened = await bench.proxy.create(bench.forward(Reply([0.1, *[b"x" * 65536] * 400])))
        held.set()
        await asyncio.sleep(1.0)
        sent = bench.upstream.wait_for("/x").sent
        [writer] = bench.proxy._active[opened.stream_id]
        assert writer._gathered_bytes < 2 * responses.GATHER_BYTES
        assert sent < 400 * 65536
        held.clear()
        for failure in waiting:
            synced(failure)
        frames = await bench.ended(opened.stream_id)
        assert sum(len(payload) for kind, _, payload in frames if kind is FrameType.DATA) == 400 * 65536
        assert frames[-1][0] is FrameType.COMPLETE

    run(tmp_path, upstream, test)


def test_a_restart_ends_what_a_dead_disk_could_not(tmp_path: Path, upstream: Upstream) -> None:
    """5.3: exactly one terminal frame, also when the disk failed and the server was stopped because of it."""

    async def first() -> str:
        bench = Bench(tmp_path / "data", upstream)
        opened = await bench.proxy.create(bench.forward(Reply([b"x", HANG])))
        await asyncio.sleep(0.1)
        bench.full = True
        await bench.proxy.stop()
        await bench.service.close()
        return opened.stream_id

    stream_id = asyncio.run(first())

    async def test(bench: Bench) -> None:
        bench.proxy.recover()
        await bench.service.committer.settle()
        frames = bench.frames(stream_id)
        assert [kind for kind, _, _ in frames] == [FrameType.START, FrameType.DATA, FrameType.ERROR]
        [frame] = FrameParser().feed(b"E\0\0\0\1" + len(frames[2][2]).to_bytes(4, "big") + frames[2][2])
        assert "restarted" in parse_failure(frame).message
        assert list(bench.store.proxy_rows(b"o")) == []
        bench.proxy.recover()
        await bench.service.committer.settle()
        assert bench.frames(stream_id) == frames

    run(tmp_path, upstream, test)
