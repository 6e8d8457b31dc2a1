"""`python -m benchmarks.feed`: how fast a bucket's feed is read, and that its cost follows the new data only.

Three questions. How many payload bytes per second does a whole feed give, read page by page over HTTP and
decoded? Does catching up on 10,000 new messages cost the same whether the bucket has 100 streams or a
million? Does a page of a bucket's listing cost the same with 1,000 streams as with a million?

The data is built through the service, in commits of 200 appends as a busy server makes them, but without
waiting for the disk; what is measured is reading.
"""

from __future__ import annotations

import asyncio
import http.client
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.errors import BenchmarkError
from benchmarks.targets import PERENNIAL, Server, running
from benchmarks.tools import BUILD
from perennial.protocol.append import Append
from perennial.protocol.create import Create
from perennial.protocol.rejections import Rejected
from perennial.service.feed_sealing import FeedSealer
from perennial.service.streams import StreamService
from perennial.store.rocks import RocksStore

OCTETS = "application/octet-stream"
COMMIT_APPENDS = 200
CREATES_AT_ONCE = 2000
MESSAGE_BYTES = 256

console = Console(width=None if sys.stdout.isatty() else 120)


@dataclass(frozen=True)
class Size:
    """How much is built. `rounds` are measurements; the median counts."""

    streams: int
    messages: int
    few_streams: int
    page_streams: int
    many_streams: int
    new_messages: int
    rounds: int


FULL = Size(100_000, 2_000_000, 100, 1_000, 1_000_000, 10_000, 15)
QUICK = Size(5_000, 100_000, 100, 1_000, 20_000, 10_000, 5)


@dataclass(frozen=True)
class Result:
    title: str
    value: str
    goal: str
    met: bool | None


def main(
    quick: Annotated[
        bool, typer.Option("--quick", help="A twentieth of the data, to see that all runs.")
    ] = False,
    data: Annotated[Path, typer.Option(help="Where the server keeps its files: a disk.")] = BUILD / "data",
    keep: Annotated[
        Path | None, typer.Option(help="Build here once, and measure again without building.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail when a goal is missed.")] = False,
) -> None:
    """Measure the bucket feed and the listing."""
    size = QUICK if quick else FULL
    with _built(size, data, keep) as root, running([PERENNIAL], root) as (server,):
        results = [
            *_measure_whole(server, size),
            _measure_catch_up(server, size),
            _measure_listing(server, size),
        ]
    table = Table("What", "Measured", "Goal", "Met", title="The bucket feed")
    for result in results:
        table.add_row(
            result.title, result.value, result.goal, {True: "yes", False: "NO", None: ""}[result.met]
        )
    console.print(table)
    sys.exit(1 if strict and any(result.met is False for result in results) else 0)


# Building


class UnsyncedStore(RocksStore):
    """Waits for the disk once, when it is closed."""

    def sync(self) -> None:
        pass


@contextmanager
def _built(size: Size, parent: Path, keep: Path | None) -> Iterator[Path]:
    if keep is not None and keep.exists():
        yield keep
        return
    parent.mkdir(parents=True, exist_ok=True)
    root = keep or Path(tempfile.mkdtemp(prefix="feed-", dir=parent))
    try:
        asyncio.run(_build(root / PERENNIAL.key, size))
        yield root
    finally:
        if keep is None:
            shutil.rmtree(root, ignore_errors=True)


async def _build(directory: Path, size: Size) -> None:
    builder = Builder(directory)
    chance = random.Random(4437)
    await builder.fill("many-messages", size.streams, size.messages, chance)
    for bucket, streams in (("few-streams", size.few_streams), ("many-streams", size.many_streams)):
        await builder.fill(bucket, streams, size.new_messages, chance)
    await builder.fill("page-streams", size.page_streams, 0, chance)
    await builder.close()


class Builder:
    def __init__(self, directory: Path) -> None:
        store = UnsyncedStore(directory)
        self._service = StreamService(store)
        self._sealer = FeedSealer(store, self._service.buckets, self._service.feed, self._service.graves)
        self._service.feed.on_growth = self._sealer.grew

    async def fill(self, bucket: str, streams: int, messages: int, chance: random.Random) -> None:
        console.print(f"building {bucket}: {streams:,} streams, {messages:,} messages", style="dim")
        self._service.create_bucket(bucket, _expect_success)
        for first in range(0, streams, CREATES_AT_ONCE):
            for number in range(first, min(streams, first + CREATES_AT_ONCE)):
                self._service.create(bucket, _name(number), Create(content_type=OCTETS), _expect_success)
            await self._service.committer.settle()
        for _ in range(0, messages, COMMIT_APPENDS):
            for _ in range(COMMIT_APPENDS):
                name = _name(chance.randrange(streams))
                message = Append(chance.randbytes(MESSAGE_BYTES), OCTETS)
                self._service.append(bucket, name, message, _expect_success)
            await self._service.committer.settle()
            while self._sealer.step():
                pass

    async def close(self) -> None:
        await self._service.close()


def _name(number: int) -> str:
    return f"session-{number:07d}"


def _expect_success(outcome: Any, state: Any = None) -> None:
    if isinstance(outcome, Rejected):
        raise BenchmarkError(f"the builder was refused: {outcome.message}")


# Measuring


def _measure_whole(server: Server, size: Size) -> list[Result]:
    best = []
    cpu = 0.0
    for _ in range(3):
        reader = FeedReader(server, "many-messages")
        busy = server.cpu_seconds()
        begun = time.perf_counter()
        reader.read_from(0)
        seconds = time.perf_counter() - begun
        cpu = server.cpu_seconds() - busy
        if reader.rows != size.messages or reader.payload_bytes != size.messages * MESSAGE_BYTES:
            raise BenchmarkError(f"the feed gave {reader.rows:,} rows of {size.messages:,}")
        best.append(reader.payload_bytes / seconds / 1e6)
    rate = median(best)
    title = f"whole feed, {size.messages:,} messages of {MESSAGE_BYTES} bytes in {size.streams:,} streams"
    return [
        Result(title, f"{rate:,.0f} MB/s", "at least 200 MB/s", rate >= 200),
        Result("  server's processor time per row", f"{1e6 * cpu / size.messages:.2f} µs", "", None),
    ]


def _measure_catch_up(server: Server, size: Size) -> Result:
    """The last 10,000 messages of both buckets in turn; the commits that brought them are alike."""

    def seconds(bucket: str) -> float:
        reader = FeedReader(server, bucket)
        head = reader.head()
        begun = time.perf_counter()
        reader.read_from(head - size.new_messages)
        took = time.perf_counter() - begun
        if reader.rows != size.new_messages:
            raise BenchmarkError(f"{bucket} gave {reader.rows:,} new rows of {size.new_messages:,}")
        return took

    few, many = _alternate(size.rounds, lambda: seconds("few-streams"), lambda: seconds("many-streams"))
    ratio = many / few
    title = f"catching up {size.new_messages:,}, {size.many_streams:,} streams against {size.few_streams}"
    value = f"{1e3 * many:.1f} ms / {1e3 * few:.1f} ms = {ratio:.2f}"
    return Result(title, value, "less than 1.3", ratio < 1.3)


def _measure_listing(server: Server, size: Size) -> Result:
    """Pages of 500 from the middle of each bucket."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def seconds(bucket: str, streams: int) -> float:
        begun = time.perf_counter()
        after = _name(streams // 4)
        connection.request("GET", f"/ds/{bucket}/streams?limit=500&after={after}")
        response = connection.getresponse()
        body = response.read()
        took = time.perf_counter() - begun
        if response.status != 200 or b'"stream_count":500' not in body:
            raise BenchmarkError(f"listing {bucket} was answered {response.status}: {body[:200]!r}")
        return took

    few, many = _alternate(
        4 * size.rounds,
        lambda: seconds("page-streams", size.page_streams),
        lambda: seconds("many-streams", size.many_streams),
    )
    connection.close()
    ratio = many / few
    title = f"listing a page of 500, {size.many_streams:,} streams against {size.page_streams:,}"
    value = f"{1e3 * many:.2f} ms / {1e3 * few:.2f} ms = {ratio:.2f}"
    return Result(title, value, "less than 1.3", ratio < 1.3)


def _alternate(rounds: int, first: Callable[[], float], second: Callable[[], float]) -> tuple[float, float]:
    """Medians of two measurements taken in turn, after one of each that does not count."""
    pairs = [(first(), second()) for _ in range(rounds + 1)][1:]
    return median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)


class FeedReader:
    """Pages of a feed over one connection, decoded as a consumer would."""

    def __init__(self, server: Server, bucket: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self._path = f"/v1/feed/{bucket}"
        self.rows = 0
        self.payload_bytes = 0

    def head(self) -> int:
        _, headers = self._ask("HEAD", self._path)
        return int(headers["Feed-Head-Position"])

    def read_from(self, position: int) -> None:
        while True:
            body, headers = self._ask("GET", f"{self._path}?after={position}")
            for batch in pa.ipc.open_stream(body):
                self.rows += batch.num_rows
                self.payload_bytes += pc.sum(pc.binary_length(batch.column("payload"))).as_py() or 0
            position = int(headers["Feed-Next-Position"])
            if position == int(headers["Feed-Head-Position"]):
                self._connection.close()
                return

    def _ask(self, method: str, path: str) -> tuple[bytes, http.client.HTTPMessage]:
        self._connection.request(method, path)
        response = self._connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise BenchmarkError(f"{method} {path} was answered {response.status}: {body[:200]!r}")
        return body, response.headers


if __name__ == "__main__":
    typer.run(main)
