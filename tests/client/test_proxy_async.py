"""The asyncio client: the same promises as the blocking one."""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable

import pytest

from perennial.client import (
    AsyncProxyClient,
    ProxyClient,
    ResponseAborted,
    ResponseFailed,
    UpstreamFailed,
    UrlExpired,
)
from tests.client.cutting import CuttingProxy
from tests.proxy.harness import TOKEN, Rig
from tests.upstream import CUT, HANG, Step


def run(url: str, test: Callable[[AsyncProxyClient], Awaitable[None]], token: str | None = TOKEN) -> None:
    async def inside() -> None:
        async with asyncio.timeout(60), AsyncProxyClient(url, token, patience=3) as client:
            await test(client)

    asyncio.run(inside())


def test_it_feels_like_an_http_client(rig: Rig) -> None:
    async def test(client: AsyncProxyClient) -> None:
        url = rig.script([b"one\n", 0.1, b"two"])
        async with client.stream("POST", url, json={"a": 1}) as response:
            assert (response.status, response.id) == (200, 1)
            assert [line async for line in response.iter_lines()] == [b"one", b"two"]
        assert await (await client.stream("GET", rig.script([b"[1]"]))).json() == [1]
        assert await (await client.resume(response.url)).text() == "one\ntwo"

    run(rig.url, test)


def test_reading_resumes_after_breaks_anywhere(rig: Rig, cutter: CuttingProxy) -> None:
    """4.5: client implementations MUST handle partial frames when resuming from an offset within a frame."""
    chooser = random.Random(11)
    pieces = [bytes([chooser.randrange(256)]) * chooser.randrange(1, 9000) for _ in range(40)]
    steps: list[Step] = [step for piece in pieces for step in (piece, 0.005)]

    async def test(client: AsyncProxyClient) -> None:
        response = await client.stream("GET", rig.script(steps))
        cutter.cuts += [chooser.randrange(900, 6000) for _ in range(30)]
        assert await response.read() == b"".join(pieces)

    run(f"{cutter.url}/v1/proxy", test)
    assert cutter.broken >= 10


def test_sessions_interleave_and_renew(rig: Rig) -> None:
    async def test(client: AsyncProxyClient) -> None:
        session = await client.connect("разговор async", ttl=1)
        with ProxyClient(rig.url, TOKEN) as blocking:
            assert blocking.connect("разговор async").stream_id == session.stream_id
        gate = threading.Event()
        first = await session.stream("GET", rig.script([b"a1", gate, b"a2"]), ttl=1)
        async with session.stream("GET", rig.script([b"b1", gate, 2.0, b"b2"]), ttl=1) as second:
            gate.set()
            bodies = await asyncio.gather(first.read(), second.read())
        assert list(bodies) == [b"a1a2", b"b1b2"]
        async with session.resume(1) as again:
            assert await again.read() == b"a1a2"

    run(rig.url, test)


def test_endings_are_raised(rig: Rig) -> None:
    async def test(client: AsyncProxyClient) -> None:
        with pytest.raises(ResponseFailed):
            await (await client.stream("GET", rig.script([b"some", 0.1, CUT]))).read()
        response = await client.stream("GET", rig.script([b"some", HANG]))
        async for chunk in response:
            assert chunk == b"some"
            await response.abort()
        with pytest.raises(ResponseAborted):
            await (await client.resume(response.url)).read()
        with pytest.raises(UpstreamFailed):
            await client.stream("GET", rig.script([], status=500))
        session = await client.connect("async-expired", ttl=0)
        await asyncio.sleep(0.6)
        with pytest.raises(UrlExpired):
            await client.resume(session.url)

    run(rig.url, test)
