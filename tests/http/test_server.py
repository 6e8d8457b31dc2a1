import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from perennial.http.binding import bind
from perennial.http.exchange import Exchange, Lane, Request
from perennial.http.limits import Limits
from perennial.http.server import Server
from tests.http.wire import Application, statuses

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
PATIENCE = 20.0  # for what must happen; nothing here waits that long


def run(scenario: Callable[[], Awaitable[Any]]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(PATIENCE):
            await scenario()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(in_time())


@asynccontextmanager
async def serving(app: Application, limits: Limits | None = None) -> AsyncIterator[Server]:
    server = Server(app, limits=limits)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(grace=0)


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, data: bytes = GET) -> bytes:
        """Send, and read the head that comes back."""
        self.writer.write(data)
        return await self.reader.readuntil(b"\r\n\r\n")

    async def rest(self) -> bytes:
        return await self.reader.read()


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()


class Waiting(Application):
    """Leaves every exchange pending, and tells when there is one."""

    def __init__(self) -> None:
        super().__init__(answer=None)
        self.arrived = asyncio.Event()
        self.drained = asyncio.Event()

    def lane(self, request: Request) -> Lane | None:
        return None

    def handle(self, exchange: Exchange) -> None:
        super().handle(exchange)
        self.arrived.set()

    def drain(self) -> None:
        self.drained.set()


def no_content(exchange: Exchange) -> None:
    exchange.respond(204, [])


def test_port_0_is_any_free_port() -> None:
    async def scenario() -> None:
        async with serving(Application(no_content)) as one, serving(Application(no_content)) as other:
            assert 0 < one.port != other.port > 0
            for server in (one, other):
                async with connected(server) as peer:
                    assert statuses(await peer.ask()) == [204]
                    assert statuses(await peer.ask()) == [204]

    run(scenario)


def test_a_taken_port_is_an_error() -> None:
    async def scenario() -> None:
        async with serving(Application()) as server:
            with pytest.raises(OSError, match="in use"):
                await Server(Application(), port=server.port).start()

    run(scenario)


def test_every_address_of_a_host_is_served() -> None:
    async def scenario() -> None:
        sockets = [*bind("127.0.0.1", 0), *bind("127.0.0.2", 0)]
        addresses = [each.getsockname() for each in sockets]
        server = Server(Application(no_content))
        await server.start(sockets)
        for address in addresses:
            peer = Peer(*await asyncio.open_connection(*address))
            assert statuses(await peer.ask()) == [204]
            peer.writer.close()
        await server.stop()
        for address in addresses:
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*address)

    run(scenario)


def test_an_address_that_is_taken_and_not_served_yet_refuses_connections() -> None:
    async def scenario() -> None:
        (taken,) = bind("127.0.0.1", 0)
        with taken, pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*taken.getsockname())

    run(scenario)


def test_a_unix_socket_is_served_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "socket"
        server = Server(Application(no_content), path=path)
        await server.start()
        peer = Peer(*await asyncio.open_unix_connection(str(path)))
        assert statuses(await peer.ask()) == [204]
        peer.writer.close()
        await server.stop()

    run(scenario)


def test_stopping_closes_idle_connections_and_accepts_no_new_ones() -> None:
    async def scenario() -> None:
        server = Server(Application(no_content))
        await server.start()
        async with connected(server) as peer, connected(server) as silent:
            await peer.ask()
            await server.stop()
            assert await peer.rest() == b""
            assert await silent.rest() == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)
        assert server.connections == 0

    run(scenario)


def test_stopping_lets_answers_finish() -> None:
    async def scenario() -> None:
        app = Waiting()
        server = Server(app)
        await server.start()
        async with connected(server) as peer:
            peer.writer.write(GET)
            await app.arrived.wait()
            stopping = asyncio.create_task(server.stop())
            await app.drained.wait()
            app.pending[0].respond(200, [], b"done")
            answer = await peer.rest()
            assert statuses(answer) == [200]
            assert b"connection: close\r\n" in answer
            assert answer.endswith(b"done")
            await stopping

    run(scenario)


def test_stopping_ends_live_reads_through_the_application() -> None:
    async def scenario() -> None:
        app = Application(answer=None)  # whose drain ends what is pending
        server = Server(app)
        await server.start()
        async with connected(server) as peer:

            def begin(exchange: Exchange) -> None:
                app.pending.append(exchange)
                exchange.begin(200, [])
                exchange.send(b"event")

            app.answer = begin
            await peer.ask()
            await server.stop()
            assert await peer.rest() == b"5\r\nevent\r\n0\r\n\r\n"

    run(scenario)


def test_stopping_cuts_what_outlasts_the_grace_period() -> None:
    async def scenario() -> None:
        app = Waiting()
        server = Server(app)
        await server.start()
        async with connected(server) as peer:
            peer.writer.write(GET)
            await app.arrived.wait()
            await server.stop(grace=0.05)
            assert await peer.rest() == b""
            assert app.pending[0].closed
            assert server.connections == 0

    run(scenario)


def test_stopping_twice_or_before_the_start_does_nothing() -> None:
    async def scenario() -> None:
        server = Server(Application())
        await server.stop()
        await server.start()
        await server.stop()
        await server.stop()

    run(scenario)


def test_a_refused_upload_gets_its_answer_and_no_reset() -> None:
    async def scenario() -> None:
        async with serving(Application(body_limit=1000)) as server, connected(server) as peer:
            size = 20_000_000
            peer.writer.write(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
            # All of it is written before anything is read, as simple clients do.
            for _ in range(size // 100_000):
                peer.writer.write(bytes(100_000))
                await peer.writer.drain()
            answer = await peer.rest()
            assert statuses(answer) == [413]

    run(scenario)


def test_little_is_kept_for_a_peer_that_does_not_read_and_nothing_is_lost() -> None:
    async def scenario() -> None:
        app = Waiting()
        writable = asyncio.Event()
        chunk = bytes(10_000)
        async with serving(app) as server, connected(server) as peer:
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            peer.writer.write(GET)
            await app.arrived.wait()
            (exchange,) = app.pending
            exchange.on_writable = writable.set
            exchange.begin(200, [])
            chunks = 0
            while exchange.writable:
                exchange.send(chunk)
                chunks += 1
            # In our buffer and both kernels'. Unbounded, the kernel's would take megabytes.
            assert chunks * len(chunk) < 1_000_000
            peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
            body = (await peer.reader.readuntil(b"\r\n\r\n"))[:0]
            while not writable.is_set():
                body += await peer.reader.read(1_000_000)
            exchange.end()
            while not body.endswith(b"0\r\n\r\n"):
                body += await peer.reader.read(1_000_000)
            assert body == (b"2710\r\n" + chunk + b"\r\n") * chunks + b"0\r\n\r\n"

    run(scenario)


def test_an_aborted_http_1_0_answer_ends_in_a_reset() -> None:
    async def scenario() -> None:
        def break_off(exchange: Exchange) -> None:
            exchange.begin(200, [])
            exchange.send(b"half of it")
            asyncio.get_running_loop().call_soon(exchange.abort)

        async with serving(Application(break_off)) as server, connected(server) as peer:
            peer.writer.write(b"GET / HTTP/1.0\r\n\r\n")
            with pytest.raises(ConnectionResetError):
                await peer.rest()

    run(scenario)


def test_the_tick_ends_the_servers_patience() -> None:
    async def scenario() -> None:
        limits = Limits(header_seconds=0.1, idle_seconds=0.1)
        async with serving(Application(), limits) as server, connected(server) as silent:
            async with connected(server) as slow:
                slow.writer.write(b"GET / HT")
                assert statuses(await slow.rest()) == [408]
            assert await silent.rest() == b""

    run(scenario)


def test_a_follower_that_leaves_is_noticed_without_writing_to_it() -> None:
    async def scenario() -> None:
        left = asyncio.Event()

        def follow(exchange: Exchange) -> None:
            exchange.on_closed = left.set
            exchange.begin(200, [])

        async with serving(Application(follow)) as server:
            async with connected(server) as peer:
                await peer.ask()
            await left.wait()

    run(scenario)


def test_a_peer_that_has_said_all_is_still_answered() -> None:
    async def scenario() -> None:
        app = Waiting()
        async with serving(app) as server, connected(server) as peer:
            peer.writer.write(GET)
            peer.writer.write_eof()
            await app.arrived.wait()
            asyncio.get_running_loop().call_later(0.02, app.pending[0].respond, 200, [], b"done")
            assert (await peer.rest()).endswith(b"done")

    run(scenario)
