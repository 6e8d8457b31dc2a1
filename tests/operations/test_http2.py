"""HTTP/2 through the ASGI app: hypercorn speaks it to clients, the application is the same."""

import asyncio
import re
import signal
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness.server import ServerProcess
from tests.operations.servers import SERVICE, TEXT
from tests.operations.test_transport import TEXT_BODY, make_certificate


class Http2Server(ServerProcess):
    ready_line = re.compile(r"Running on (https://127\.0\.0\.1:(\d+))")
    clean_exits = (0, -signal.SIGTERM)

    def command(self) -> list[str]:
        certificate = ["--certfile", str(self.data.parent / "cert.pem")]
        key = ["--keyfile", str(self.data.parent / "key.pem")]
        address = ["--bind", f"127.0.0.1:{self.port}", "--graceful-timeout", "2"]
        return [
            sys.executable,
            "-m",
            "hypercorn",
            *certificate,
            *key,
            *address,
            "perennial.asgi:create_app()",
        ]


Trust = ssl.SSLContext


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("http2")
    make_certificate(directory, "http2")
    return directory


@pytest.fixture(scope="module")
def trust(directory: Path) -> Trust:
    return ssl.create_default_context(cafile=str(directory / "cert.pem"))


@pytest.fixture(scope="module")
def client(directory: Path, trust: Trust) -> Iterator[httpx.Client]:
    env = {"PERENNIAL_AUTH_TOKENS": SERVICE}
    headers = {"Authorization": f"Bearer {SERVICE}"}
    with (
        Http2Server(directory / "data", env) as server,
        httpx.Client(base_url=server.url, headers=headers, http2=True, verify=trust, timeout=15) as speaker,
    ):
        yield speaker


def test_streams_are_created_appended_to_and_read(client: httpx.Client) -> None:
    created = client.put("/v1/stream/s", headers=TEXT)
    assert (created.status_code, created.http_version) == (201, "HTTP/2")
    assert created.headers["location"].startswith("https://127.0.0.1:")
    assert client.post("/v1/stream/s", headers=TEXT, content=TEXT_BODY).status_code == 204
    read = client.get("/v1/stream/s")
    assert (read.content, read.headers["content-encoding"]) == (TEXT_BODY, "gzip")
    assert client.get("/v1/stream/s", headers={"Authorization": "Bearer no"}).status_code == 401


def test_events_arrive_while_the_same_connection_carries_appends(client: httpx.Client, trust: Trust) -> None:
    """All requests share one HTTP/2 connection: a reader must not stand in the writers' way."""

    async def follow(speaker: httpx.AsyncClient, joined: asyncio.Event) -> str:
        text = ""
        async with speaker.stream("GET", "/v1/stream/live?offset=-1&live=sse") as events:
            assert events.http_version == "HTTP/2"
            assert events.headers["content-type"] == "text/event-stream"
            async for line in events.aiter_lines():
                joined.set()
                if line.startswith("data:") and not line.startswith("data:{"):
                    text += line.removeprefix("data:")
        return text

    async def talk() -> None:
        async with httpx.AsyncClient(
            base_url=client.base_url, headers=client.headers, http2=True, verify=trust, timeout=15
        ) as speaker:
            (await speaker.put("/v1/stream/live", headers=TEXT)).raise_for_status()
            joined = asyncio.Event()
            following = asyncio.create_task(follow(speaker, joined))
            await joined.wait()
            for word in ("one ", "two ", "three"):
                appended = await speaker.post("/v1/stream/live", headers=TEXT, content=word)
                assert appended.status_code == 204
            assert (await speaker.post("/v1/stream/live", headers={"Stream-Closed": "true"})).is_success
            assert await following == "one two three"

    asyncio.run(asyncio.wait_for(talk(), 30))


def test_a_long_poll_waits_beside_other_requests(client: httpx.Client, trust: Trust) -> None:
    async def talk() -> None:
        async with httpx.AsyncClient(
            base_url=client.base_url, headers=client.headers, http2=True, verify=trust, timeout=15
        ) as speaker:
            (await speaker.put("/v1/stream/polled", headers=TEXT)).raise_for_status()
            poll = asyncio.create_task(speaker.get("/v1/stream/polled?offset=-1&live=long-poll"))
            assert (await speaker.get("/healthz")).status_code == 200
            (await speaker.post("/v1/stream/polled", headers=TEXT, content=b"news")).raise_for_status()
            answer = await poll
            assert (answer.http_version, answer.text) == ("HTTP/2", "news")

    asyncio.run(asyncio.wait_for(talk(), 30))


def test_metrics_and_readiness_are_there_too(client: httpx.Client) -> None:
    assert client.get("/readyz").json()["ready"]
    assert (
        'perennial_requests_total{method="POST",status="204",surface="stream"}' in client.get("/metrics").text
    )
