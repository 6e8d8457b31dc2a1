"""`bench`: a small load on a server, and a table. A first impression, not a benchmark suite."""

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, NamedTuple
from urllib.parse import urlsplit

import typer

from perennial.cli.exits import Code, die, say
from perennial.cli.options import DEFAULT_URL, Token, Url

if TYPE_CHECKING:
    from perennial.client.address import Address


class Figures(NamedTuple):
    what: str
    rate: str
    p50_ms: float | None = None
    p99_ms: float | None = None


def register(app: typer.Typer) -> None:
    app.command()(bench)


def bench(
    seconds: Annotated[float, typer.Option(min=0.1, help="How long each part takes.")] = 3.0,
    connections: Annotated[int, typer.Option(min=1, help="Connections that append at the same time.")] = 32,
    size: Annotated[int, typer.Option(min=1, help="Bytes in one append.")] = 256,
    streams: Annotated[int, typer.Option(min=1, help="Streams they append to.")] = 8,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Append, read and tail for a few seconds. The streams are removed afterwards.

    Client and server share the machine if the server is local, and this client is not a fast one: take the
    figures as a lower bound.
    """
    from perennial.cli.reaching import unreachable
    from perennial.client.address import server_address
    from perennial.client.wire import ConnectionLost

    try:
        address = server_address(url)
    except ValueError as error:
        die(str(error), Code.USAGE)
    if urlsplit(address.url).scheme != "http":
        die("bench speaks plain HTTP only", Code.USAGE)
    try:
        figures = asyncio.run(_Bench(address, token, seconds, connections, size, streams).run())
    except ConnectionLost as error:
        raise unreachable(address, error, "--url or PERENNIAL_URL says where") from error
    except (OSError, EOFError):
        die(f"{address} went away in the middle", Code.UNREACHABLE)
    _print(figures)


def _print(figures: list[Figures]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for title in ("rate", "p50 ms", "p99 ms"):
        table.add_column(title, justify="right")
    for row in figures:
        times = ["" if value is None else f"{value:.2f}" for value in (row.p50_ms, row.p99_ms)]
        table.add_row(row.what, row.rate, *times)
    Console(highlight=False).print(table)


class _Bench:
    def __init__(
        self, address: "Address", token: str | None, seconds: float, connections: int, size: int, streams: int
    ) -> None:
        self._address = address
        self._token = token
        self._seconds = seconds
        self._connections = connections
        self._body = b"x" * size
        run = f"bench-{time.time_ns():x}"
        self._paths = [f"/v1/stream/{run}/{number}" for number in range(streams)]

    async def run(self) -> list[Figures]:
        from perennial.cli.session import CODES

        line = await self._connect()
        try:
            for path in self._paths:
                status, _ = await line.ask("PUT", path, {"content-type": "text/plain"})
                if status != 201:
                    die(f"the server refuses to create streams ({status})", CODES.get(status, Code.FAILED))
            say(f"{self._connections} connections, {len(self._paths)} streams, {len(self._body)} bytes each")
            return [await self._appends(), await self._reads(line), await self._tail(line)]
        finally:
            for path in self._paths:
                await line.ask("DELETE", path)
            line.close()

    async def _connect(self) -> "_Line":
        from perennial.client.wire import ConnectionLost

        parts = urlsplit(self._address.url)
        assert parts.hostname is not None, "server_address has seen to it"
        try:
            if self._address.socket is not None:
                reader, writer = await asyncio.open_unix_connection(self._address.socket)
            else:
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
        except OSError as error:
            reason = error.strerror or error
            raise ConnectionLost(f"cannot connect to {self._address}: {reason}") from error
        return _Line(reader, writer, parts.hostname, self._token)

    async def _appends(self) -> Figures:
        lines = [await self._connect() for _ in range(self._connections)]
        times: list[float] = []
        until = time.perf_counter() + self._seconds

        async def work(number: int, line: _Line) -> None:
            path = self._paths[number % len(self._paths)]
            while (began := time.perf_counter()) < until:
                status, _ = await line.ask("POST", path, {"content-type": "text/plain"}, self._body)
                if status not in (200, 204):
                    die(f"an append was refused ({status})")
                times.append(time.perf_counter() - began)

        await asyncio.gather(*(work(number, line) for number, line in enumerate(lines)))
        for line in lines:
            line.close()
        return Figures("appends, durable", f"{len(times) / self._seconds:,.0f}/s", *_percentiles(times))

    async def _reads(self, line: "_Line") -> Figures:
        taken = 0
        began = time.perf_counter()
        while time.perf_counter() - began < self._seconds:
            for path in self._paths:
                offset = "-1"
                while True:
                    status, answer = await line.ask("GET", f"{path}?offset={offset}")
                    taken += len(answer.body)
                    if status != 200 or "stream-up-to-date" in answer.headers:
                        break
                    offset = answer.headers["stream-next-offset"]
        rate = taken / (time.perf_counter() - began) / 1e6
        return Figures("catch-up reads", f"{rate:,.0f} MB/s")

    async def _tail(self, line: "_Line") -> Figures:
        """From before an append to its arrival at a long-poll."""
        path = self._paths[0]
        tail = await self._connect()
        _, answer = await line.ask("HEAD", path)
        offset = answer.headers["stream-next-offset"]
        times: list[float] = []
        until = time.perf_counter() + self._seconds
        while time.perf_counter() < until:
            waiting = asyncio.ensure_future(tail.ask("GET", f"{path}?offset={offset}&live=long-poll"))
            await asyncio.sleep(0.002)
            began = time.perf_counter()
            await line.ask("POST", path, {"content-type": "text/plain"}, self._body)
            _, answer = await waiting
            times.append(time.perf_counter() - began)
            offset = answer.headers["stream-next-offset"]
        tail.close()
        return Figures("append to live reader", f"{len(times):,} times", *_percentiles(times))


class _Answer(NamedTuple):
    headers: dict[str, str]
    body: bytes


class _Line:
    """One connection, one request at a time."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, token: str | None
    ) -> None:
        self._reader, self._writer = reader, writer
        self._common = f"host: {host}\r\n" + (f"authorization: Bearer {token}\r\n" if token else "")

    async def ask(
        self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> tuple[int, _Answer]:
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = f"{method} {target} HTTP/1.1\r\n{self._common}{lines}content-length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        raw = await self._reader.readuntil(b"\r\n\r\n")
        first, *rest = raw.decode("latin-1").split("\r\n")
        found = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        content = b""
        if method != "HEAD":
            if found.get("transfer-encoding") == "chunked":
                content = await self._chunks()
            else:
                content = await self._reader.readexactly(int(found.get("content-length", 0)))
        return int(first.split()[1]), _Answer(found, content)

    async def _chunks(self) -> bytes:
        content = b""
        while size := int(await self._reader.readline(), 16):
            content += await self._reader.readexactly(size)
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return content

    def close(self) -> None:
        self._writer.close()


def _percentiles(times: list[float]) -> tuple[float, float]:
    ordered = sorted(times) or [0.0]
    return ordered[len(ordered) // 2] * 1000, ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1000
