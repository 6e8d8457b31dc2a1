"""What the proxy costs: `python -m benchmarks.proxy`.

Three figures, each beside its goal: how much later the first byte comes than directly from the upstream, how
much later tokens come when 200 responses stream at once, and what an idle response costs in memory.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

import uvloop
from rich.console import Console
from rich.table import Table

ROUNDS = 300
RESPONSES = 200
SECONDS = 10
IDLE_RESPONSES = 1000
TTFB_GOAL_MS = 5.0
LATENCY_GOAL_MS = 100.0
IDLE_GOAL_KB = 50.0
READY = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")
STAMP = re.compile(rb"data: (\d{20})")


class Http:
    """One keep-alive connection, with as little between us and the socket as there can be."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, method: str, target: str, headers: str = "") -> tuple[int, dict[str, str]]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 22)
        reader, writer = self._streams
        length = "Content-Length: 0\r\n" if method == "POST" else ""
        writer.write(
            f"{method} {target} HTTP/1.1\r\nHost: localhost:{self._port}\r\n{length}{headers}\r\n".encode()
        )
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.partition(": ") for line in lines if line)
        self.headers = {name.lower(): value for name, _, value in pairs}
        return int(first.split()[1]), self.headers

    async def some(self) -> bytes:
        """Whatever comes next of the body, framing and all."""
        assert self._streams is not None
        return await self._streams[0].read(1 << 20)

    async def body(self) -> bytes:
        assert self._streams is not None
        if "chunked" in self.headers.get("transfer-encoding", ""):
            return await self._streams[0].readuntil(b"0\r\n\r\n")
        return await self._streams[0].readexactly(int(self.headers.get("content-length", "0")))

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


class Rig:
    def __init__(self, proxy: int, upstream: int, pid: int) -> None:
        self.proxy = proxy
        self.upstream = upstream
        self.pid = pid

    async def create(self, http: Http, path: str) -> str:
        """The target of the new stream's signed URL."""
        url = f"http://127.0.0.1:{self.upstream}/allowed/{path}"
        status, headers = await http.send(
            "POST", "/v1/proxy", f"Upstream-URL: {url}\r\nUpstream-Method: GET\r\n"
        )
        if status != 201:
            raise SystemExit(f"the proxy answered {status}: {(await http.body())[:200]!r}")
        return headers["location"].partition(f":{self.proxy}")[2]

    def resident_kb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return float(re.findall(r"VmRSS:\s+(\d+)", status)[0])


async def first_byte(rig: Rig) -> tuple[float, float]:
    """Milliseconds to the first byte of the body, directly and through the proxy (medians)."""
    direct, proxied = [], []
    upstream, proxy = Http(rig.upstream), Http(rig.proxy)
    for number in range(ROUNDS):
        began = time.perf_counter()
        await upstream.send("GET", "/allowed/first")
        await upstream.body()
        direct_ms = (time.perf_counter() - began) * 1000
        began = time.perf_counter()
        target = await rig.create(proxy, "first")
        offset, found = 0, False
        while not found:
            await proxy.send("GET", f"{target}&offset={offset:016d}&live=long-poll")
            body = await proxy.body()
            offset += len(body)
            found = STAMP.search(body) is not None
        proxied_ms = (time.perf_counter() - began) * 1000
        if number >= ROUNDS // 10:  # after warming up
            direct.append(direct_ms)
            proxied.append(proxied_ms)
    upstream.close()
    proxy.close()
    return median(direct), median(proxied)


async def token_delays(rig: Rig, through_proxy: bool) -> list[float]:
    """Milliseconds from sending to receiving each token, with all responses streaming at once."""
    delays: list[float] = []
    count = SECONDS * 50
    await asyncio.gather(*(_follow(rig, through_proxy, count, delays) for _ in range(RESPONSES)))
    if len(delays) != RESPONSES * count:
        raise SystemExit(f"{RESPONSES * count} tokens were sent and {len(delays)} received")
    return delays


async def _follow(rig: Rig, through_proxy: bool, count: int, delays: list[float]) -> None:
    if through_proxy:
        maker, http = Http(rig.proxy), Http(rig.proxy)
        target = await rig.create(maker, f"tokens?n={count}")
        maker.close()
        await http.send("GET", f"{target}&offset=-1&live=sse")
    else:
        http = Http(rig.upstream)
        await http.send("GET", f"/allowed/tokens?n={count}")
    held, seen = b"", 0
    while seen < count:
        held += await http.some()
        now = time.monotonic_ns()
        if through_proxy:
            *events, held = held.split(b"\n\n")
            data = b"".join(
                base64.b64decode(event.rpartition(b"data:")[2]) for event in events if b"event: data" in event
            )
        else:
            data, held = held, b""
        stamps = STAMP.findall(data)
        seen += len(stamps)
        delays += [(now - int(stamp)) / 1e6 for stamp in stamps]
    http.close()


async def idle_kilobytes(rig: Rig) -> float:
    """Memory of the server per response that is open and silent."""
    http = Http(rig.proxy)
    for _ in range(100):
        await rig.create(http, "idle")
    await asyncio.sleep(0.5)
    before = rig.resident_kb()
    for _ in range(IDLE_RESPONSES):
        await rig.create(http, "idle")
    await asyncio.sleep(0.5)
    http.close()
    return (rig.resident_kb() - before) / IDLE_RESPONSES


@contextmanager
def running() -> Iterator[Rig]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PERENNIAL_")} | {
        "PERENNIAL_PROXY_ALLOW": "http://127.0.0.1:*/allowed/**",
        "PERENNIAL_PROXY_ALLOW_PRIVATE": "true",
        "PERENNIAL_PROXY_MAX_UPSTREAMS": "5000",
        "PERENNIAL_SSE_MAX_AGE": "3600",
        "PYTHONUNBUFFERED": "1",
    }
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path(__file__).parent) as data:
        command = [sys.executable, "-m", "perennial", "serve", "--port", "0", "--data", data]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
        upstream = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.proxy_upstream"], stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            assert upstream.stdout is not None
            port = next(int(found[1]) for line in server.stdout if (found := READY.search(line)))
            yield Rig(port, int(upstream.stdout.readline()), server.pid)
        finally:
            for process in (server, upstream):
                process.terminate()
                process.wait()


async def measure(rig: Rig) -> list[tuple[str, str, float, float, str]]:
    direct, proxied = await first_byte(rig)
    plain = quantiles(await token_delays(rig, through_proxy=False), n=100)
    piped = quantiles(await token_delays(rig, through_proxy=True), n=100)
    idle = await idle_kilobytes(rig)
    return [
        (
            "first byte, added (p50)",
            f"{direct:.2f} ms directly, {proxied:.2f} ms through the proxy",
            proxied - direct,
            TTFB_GOAL_MS,
            "ms",
        ),
        (
            f"{RESPONSES} responses of 50 tokens/s, added (p99)",
            f"{plain[98]:.1f} ms directly, {piped[98]:.1f} ms through the proxy (p50 {piped[49]:.1f} ms)",
            piped[98] - plain[98],
            LATENCY_GOAL_MS,
            "ms",
        ),
        ("memory of an idle response", f"over {IDLE_RESPONSES} of them", idle, IDLE_GOAL_KB, "KB"),
    ]


def main() -> int:
    with running() as rig:
        rows = uvloop.run(measure(rig))
    table = Table("figure", "measured", "value", "goal", "met")
    for name, detail, value, goal, unit in rows:
        table.add_row(
            name, detail, f"{value:.2f} {unit}", f"under {goal:g} {unit}", "yes" if value < goal else "NO"
        )
    Console().print(table)
    return 0 if all(value < goal for _, _, value, goal, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
