"""The official Python client, asynchronous."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from durable_streams import AsyncDurableStream, HeadersLike, StreamEvent, StreamNotFoundError, astream

PATIENCE_SECONDS = 20.0


async def upcoming(events: AsyncIterator[StreamEvent[Any]]) -> StreamEvent[Any]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await anext(events)


def test_a_stream_lives_from_creation_to_deletion(url: str) -> None:
    async def scenario() -> None:
        async with await AsyncDurableStream.create(url, content_type="text/plain", body="a") as handle:
            await handle.append("b")
            result = await handle.append("c")
            found = await handle.head()
            assert (found.content_type, found.offset) == ("text/plain", result.next_offset)
            async with astream(url, live=False) as response:
                assert await response.read_text() == "abc"
            await handle.delete()
            with pytest.raises(StreamNotFoundError):
                await handle.head()

    asyncio.run(scenario())


def test_concurrent_appends_are_batched_and_all_arrive(url: str) -> None:
    async def scenario() -> None:
        async with await AsyncDurableStream.create(url, content_type="application/json") as handle:
            await asyncio.gather(*(handle.append({"number": number}) for number in range(200)))
            async with astream(url) as response:
                messages = await response.read_json()
        assert sorted(message["number"] for message in messages) == list(range(200))

    asyncio.run(scenario())


def test_bytes_larger_than_a_chunk_are_read_whole(url: str) -> None:
    content = bytes(range(256)) * 15_000

    async def scenario() -> None:
        async with await AsyncDurableStream.create(url, content_type="application/octet-stream") as handle:
            await handle.append(content)
            async with astream(url) as response:
                assert await response.read_bytes() == content

    asyncio.run(scenario())


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_many_readers_follow_one_writer(url: str, live: Any) -> None:
    async def follow() -> list[Any]:
        received: list[Any] = []
        async with astream(url, offset="-1", live=live, timeout=PATIENCE_SECONDS) as response:
            async for event in response.iter_events(mode="json"):
                received += event.data
                if received[-1] == {"last": True}:
                    return received
        raise AssertionError("the stream ended early")

    async def scenario() -> None:
        async with await AsyncDurableStream.create(url, content_type="application/json") as handle:
            readers = [asyncio.create_task(follow()) for _ in range(5)]
            expected: list[Any] = [{"number": number} for number in range(30)]
            for message in expected:
                await handle.append(message)
            await handle.append({"last": True})
            async with asyncio.timeout(PATIENCE_SECONDS):
                for received in await asyncio.gather(*readers):
                    assert received == [*expected, {"last": True}]

    asyncio.run(scenario())


def test_closure_ends_an_sse_read(url: str) -> None:
    closing: HeadersLike = {"Stream-Closed": "true"}

    async def scenario() -> None:
        async with (
            await AsyncDurableStream.create(url, content_type="application/json") as handle,
            AsyncDurableStream(url, content_type="application/json", headers=closing) as closer,
            astream(url, offset="-1", live="sse", timeout=PATIENCE_SECONDS) as response,
        ):
            events = response.iter_events(mode="json")
            await handle.append(1)
            assert (await upcoming(events)).data == [1]
            await closer.append(2)
            assert (await upcoming(events)).data == [2]
            with pytest.raises(StopAsyncIteration):
                await upcoming(events)

    asyncio.run(scenario())
