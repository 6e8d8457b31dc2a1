"""Whatever happens in whatever order: ids without gaps, whole frames, exactly one end (section 5.3)."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from perennial.protocol.append import Append
from perennial.protocol.frames import TERMINAL, FrameType
from perennial.protocol.names import PROXY_BUCKET
from perennial.proxy import responses
from perennial.proxy.errors import ProxyError
from perennial.proxy.operations import session_stream_id
from tests.proxy.test_responses import Bench
from tests.upstream import CUT, HANG, RESET, Reply, Step, Upstream

SESSIONS = [session_stream_id(f"session {number}") for number in range(4)]
TICK: list[Step] = [b"abcdefgh" * 40, 0.01]
ENDINGS: list[Sequence[Step]] = [(), (), (CUT,), (RESET,), (HANG,)]
STEPS = 60


def check_stream(frames: list[tuple[FrameType, int, bytes]], started: int) -> None:
    ids = [response_id for _, response_id, _ in frames]
    assert sorted(set(ids)) == list(range(1, max(ids, default=0) + 1)), "ids have no gaps"
    assert max(ids, default=0) >= started, "an id that was told is there"
    for number in set(ids):
        mine = [(kind, payload) for kind, response_id, payload in frames if response_id == number]
        kinds = [kind for kind, _ in mine]
        assert kinds.count(FrameType.START) == 1
        assert kinds[0] is FrameType.START
        assert sum(kind in TERMINAL for kind in kinds) == 1
        assert kinds[-1] in TERMINAL
        body = b"".join(payload for kind, payload in mine if kind is FrameType.DATA)
        assert (b"abcdefgh" * 1000).startswith(body)


async def live(bench: Bench, chance: random.Random, told: dict[str, int], deleted: set[str]) -> None:
    """Random things happen for a while, several at a time."""

    async def append(stream_id: str) -> None:
        steps = [*TICK * chance.randrange(0, 20), *chance.choice(ENDINGS)]
        path = f"/x{chance.randrange(10**9)}"
        try:
            await bench.proxy.connect(stream_id, None)
            opened = await bench.proxy.append(stream_id, bench.forward(Reply(steps), path))
        except ProxyError:
            return
        told[stream_id] = max(told.get(stream_id, 0), opened.response_id)

    async def act() -> None:
        stream_id = chance.choice(SESSIONS)
        what = chance.random()
        try:
            if what < 0.6:
                await append(stream_id)
            elif what < 0.75:
                await bench.proxy.abort(stream_id)
            elif what < 0.8:
                deleted.add(stream_id)
                await bench.proxy.delete(stream_id)
            elif what < 0.83:
                bench.service.append(
                    PROXY_BUCKET, stream_id, Append(b"", close=True), lambda outcome, state: None
                )
            elif what < 0.9:
                bench.full = True
                await asyncio.sleep(chance.random() * 0.05)
                bench.full = False
        except ProxyError:
            pass

    async with asyncio.TaskGroup() as group:
        for _ in range(STEPS):
            group.create_task(act())
            await asyncio.sleep(chance.random() * 0.03)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_every_response_ends_once(
    seed: int, tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5.3: there MUST be exactly one terminal frame per response id; ids are sequential."""
    monkeypatch.setattr(responses, "RETRY_SECONDS", 0.02)
    chance = random.Random(seed)
    told: dict[str, int] = {}
    deleted: set[str] = set()

    async def one_life() -> None:
        bench = Bench(tmp_path / "data", upstream)
        bench.proxy.recover()
        try:
            await live(bench, chance, told, deleted)
        finally:
            bench.full = chance.random() < 0.5  # some stops happen on a full disk
            await bench.proxy.stop()
            await bench.service.close()

    async def look() -> None:
        bench = Bench(tmp_path / "data", upstream)
        bench.proxy.recover()
        await bench.service.committer.settle()
        assert list(bench.store.proxy_rows(b"o")) == []
        for stream_id in SESSIONS:
            if bench.service.find(PROXY_BUCKET, stream_id) is not None:
                check_stream(bench.frames(stream_id), 0 if stream_id in deleted else told.get(stream_id, 0))
        await bench.close()

    for _ in range(2):
        asyncio.run(one_life())
    asyncio.run(look())
