"""The adapter, driven by hand-made receive and send: no host, no network."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from perennial.http.asgi import QUEUE_BYTES, AnswerBrokenOff, AsgiApp, Message, Scope, split_path
from perennial.http.exchange import COMMON_HEADERS, Exchange, Request, SharedChunk
from tests.http.wire import Application, Sink


def run(scenario: Callable[[], Awaitable[Any]]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(20):
            await scenario()

    asyncio.run(in_time())


def scope(method: str = "GET", path: str = "/", **more: Any) -> Scope:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [],
        "client": ("192.0.2.1", 50000),
        **more,
    }


class Host:
    """An ASGI server with one request."""

    def __init__(self, *body: bytes) -> None:
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        for number, piece in enumerate(body or (b"",), start=1):
            self.incoming.put_nowait({"type": "http.request", "body": piece, "more_body": number < len(body)})
        self.sent: list[Message] = []
        self.arrived = asyncio.Event()  # something was sent
        self.may_send = asyncio.Event()  # cleared: the peer does not read
        self.may_send.set()
        self.failure: Exception | None = None

    async def receive(self) -> Message:
        return await self.incoming.get()

    async def send(self, message: Message) -> None:
        await self.may_send.wait()
        if self.failure is not None:
            raise self.failure
        self.sent.append(dict(message))
        self.arrived.set()

    def disconnect(self) -> None:
        self.incoming.put_nowait({"type": "http.disconnect"})

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        assert not self.sent[-1]["more_body"]
        assert all(message["more_body"] for message in self.sent[1:-1])
        return b"".join(message["body"] for message in self.sent[1:])


def serve(app: Application) -> AsgiApp:
    @asynccontextmanager
    async def factory() -> AsyncIterator[Application]:
        yield app

    return AsgiApp(factory)


def answered(app: Application, request: Scope, *body: bytes) -> Host:
    host = Host(*body)
    run(lambda: serve(app)(request, host.receive, host.send))
    return host


# Requests


def test_a_request_has_its_parts() -> None:
    app = Application()
    headers = [(b"Host", b"a"), (b"x", b"1"), (b"x", b"2")]
    request = scope("POST", "/p", raw_path=b"/%70", query_string=b"q=1", scheme="https", headers=headers)
    host = answered(app, request, b"he", b"", b"llo")
    (seen,) = app.seen
    assert (seen.method, seen.path, seen.query) == ("POST", b"/%70", b"q=1")
    assert seen.headers == {b"host": "a", b"x": "1, 2"}
    assert (seen.body, seen.scheme, seen.client) == (b"hello", "https", "192.0.2.1")
    assert (host.status, host.body) == (200, b"POST /%70 hello")


def test_a_host_may_not_know_its_client() -> None:
    app = Application()
    answered(app, scope(client=None))
    assert app.seen[0].client == ""


@pytest.mark.parametrize(
    ("root", "path", "raw", "place", "local"),
    [
        ("", "/a/b", b"/a/b", b"", b"/a/b"),
        ("", "/a b/é", None, b"", b"/a%20b/%C3%A9"),
        ("", "/a b", b"/a%20b", b"", b"/a%20b"),
        ("", "/a", b"/a?query", b"", b"/a"),
        ("/app", "/app/a", b"/app/a", b"/app", b"/a"),
        ("/app", "/app/a%2Fb", b"/app/a%252Fb", b"/app", b"/a%252Fb"),
        ("/app", "/app/a", b"/%61pp/a", b"/%61pp", b"/a"),
        ("/app", "/app", b"/app", b"/app", b"/"),
        ("/app/", "/app/a", b"/app/a", b"/app", b"/a"),
        ("/app", "/application", b"/application", b"/app", b"/application"),
        ("/my app/v1", "/my app/v1/a/b", b"/my%20app/v1/a/b", b"/my%20app/v1", b"/a/b"),
        ("/my app", "/a", b"/a", b"/my%20app", b"/a"),  # a host that took the root path off already
        ("/app", "/app/a", None, b"/app", b"/a"),
    ],
)
def test_the_path_begins_where_the_application_is_mounted(
    root: str, path: str, raw: bytes | None, place: bytes, local: bytes
) -> None:
    assert split_path(scope(path=path, raw_path=raw, root_path=root)) == (place, local)


def test_cookies_that_come_one_by_one_are_one_header() -> None:
    app = Application()
    headers = [(b"cookie", b"a=1"), (b"x", b"1"), (b"cookie", b"b=2"), (b"x", b"2")]
    answered(app, scope(headers=headers))
    assert app.seen[0].headers == {b"cookie": "a=1; b=2", b"x": "1, 2"}


# Bodies


def test_a_declared_body_is_refused_before_it_is_read() -> None:
    async def scenario() -> None:
        app = Application(body_limit=10)
        host = Host()
        host.incoming = asyncio.Queue()
        request = scope("POST", headers=[(b"content-length", b"11")])
        task = asyncio.ensure_future(serve(app)(request, host.receive, host.send))
        await host.arrived.wait()
        assert (host.status, app.refusals[0][0], app.seen) == (413, 413, [])
        host.disconnect()
        await task

    run(scenario)


def test_a_refusal_ends_when_the_rest_of_the_body_has_been_read() -> None:
    host = answered(Application(body_limit=10), scope("POST"), b"x" * 6, b"x" * 6, b"x", b"x")
    assert (host.status, host.body) == (413, b"the body is larger than this resource takes")
    assert host.incoming.empty()


def test_a_refusal_does_not_wait_for_ever_for_the_rest_of_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perennial.http.asgi.LINGER_SECONDS", 0.0)
    host = answered(Application(body_limit=3), scope("POST", headers=[(b"content-length", b"4")]))
    assert host.status == 413


def test_a_refusal_does_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perennial.http.asgi.LINGER_BYTES", 100)
    host = answered(Application(body_limit=10), scope("POST"), *[b"x" * 20] * 100)
    assert host.status == 413
    assert host.incoming.qsize() > 90


def test_a_body_is_refused_when_it_has_grown_too_large() -> None:
    app = Application(body_limit=10)
    assert answered(app, scope("POST"), b"x" * 6, b"x" * 4).status == 200
    assert answered(app, scope("POST"), b"x" * 6, b"x" * 5, b"x").status == 413


def test_a_sink_is_fed_instead_of_the_body() -> None:
    sink = Sink()
    app = Application(sink=sink)
    answered(app, scope("PUT"), b"he", b"llo")
    assert (app.seen[0].body, app.seen[0].sink, sink.fed, sink.abandoned) == (b"", sink, [b"he", b"llo"], 0)


def test_a_sink_is_told_when_the_rest_will_not_come() -> None:
    sink = Sink()
    app = Application(sink=sink, body_limit=10)
    assert answered(app, scope("PUT"), b"x" * 6, b"x" * 6).status == 413
    assert sink.abandoned == 1


def test_a_request_whose_peer_left_is_not_handled() -> None:
    sink = Sink()
    app = Application(sink=sink)
    host = Host()
    host.incoming = asyncio.Queue()
    host.incoming.put_nowait({"type": "http.request", "body": b"half", "more_body": True})
    host.disconnect()
    run(lambda: serve(app)(scope("PUT"), host.receive, host.send))
    assert (app.seen, host.sent, sink.abandoned) == ([], [], 1)


def test_requests_without_a_body_ask_for_no_limit() -> None:
    class NoBodies(Application):
        def body_limit(self, request: Request) -> int:
            raise AssertionError

    assert answered(NoBodies(), scope()).status == 200


# Answers


def test_an_answer_has_a_length_and_the_common_headers() -> None:
    app = Application(lambda exchange: exchange.respond(201, [(b"x-own", b"1")], [b"he", memoryview(b"llo")]))
    host = answered(app, scope())
    assert (host.status, host.body) == (201, b"hello")
    assert host.headers == {b"x-own": b"1", b"content-length": b"5", **dict(COMMON_HEADERS)}
    assert len(host.sent) == 2


def test_a_large_answer_is_sent_in_its_pieces() -> None:
    pieces: list[bytes | memoryview] = [bytes(QUEUE_BYTES), memoryview(bytes(10))]
    host = answered(Application(lambda exchange: exchange.respond(200, [], pieces)), scope())
    assert host.body == bytes(QUEUE_BYTES + 10)
    assert len(host.sent) == 3
    assert all(type(message["body"]) is bytes for message in host.sent[1:])


@pytest.mark.parametrize(
    ("method", "status", "body", "length"),
    [
        ("HEAD", 200, b"hello", b"5"),
        ("HEAD", 200, b"", None),
        ("GET", 204, b"", None),
        ("GET", 304, b"ignored", None),
        ("GET", 200, b"", b"0"),
    ],
)
def test_some_answers_have_no_body(method: str, status: int, body: bytes, length: bytes | None) -> None:
    host = answered(Application(lambda exchange: exchange.respond(status, [], body)), scope(method))
    assert (host.status, host.body) == (status, b"")
    assert host.headers.get(b"content-length") == length


# Streaming


@asynccontextmanager
async def following() -> AsyncIterator[tuple[Host, Exchange, asyncio.Task[None]]]:
    """An answer that has begun; afterwards its request must have ended."""
    begun: list[Exchange] = []

    def begin(exchange: Exchange) -> None:
        exchange.begin(200, [])
        begun.append(exchange)

    host = Host()
    task = asyncio.ensure_future(serve(Application(begin))(scope(), host.receive, host.send))
    await host.arrived.wait()
    yield host, begun[0], task
    await asyncio.wait([task])


def test_a_stream_is_sent_piece_by_piece() -> None:
    async def scenario() -> None:
        async with following() as (host, exchange, task):
            for number, piece in enumerate((b"one", b"two"), start=2):
                host.arrived.clear()
                exchange.send_shared(SharedChunk(piece))
                await host.arrived.wait()
                assert len(host.sent) == number
            exchange.end()
            assert exchange.closed
            exchange.send(b"too late")
            exchange.end()
            await task
            assert host.body == b"onetwo"
            assert b"content-length" not in host.headers

    run(scenario)


def test_a_stream_is_not_writable_while_its_peer_does_not_read() -> None:
    async def scenario() -> None:
        async with following() as (host, exchange, task):
            writable = asyncio.Event()
            exchange.on_writable = writable.set
            host.may_send.clear()
            assert exchange.writable
            exchange.send(bytes(QUEUE_BYTES - 1))
            assert exchange.writable
            exchange.send(b"x")
            assert not exchange.writable
            for _ in range(5):
                await asyncio.sleep(0)
            assert not writable.is_set()
            host.may_send.set()
            await writable.wait()
            assert exchange.writable
            exchange.end()
            await task
            assert len(host.body) == QUEUE_BYTES

    run(scenario)


def test_a_follower_that_leaves_is_noticed() -> None:
    async def scenario() -> None:
        async with following() as (host, exchange, task):
            gone = asyncio.Event()
            exchange.on_closed = gone.set
            host.disconnect()
            await gone.wait()
            assert exchange.closed
            assert not exchange.writable
            exchange.send(b"x")
            exchange.respond(200, [])
            await task
            assert len(host.sent) == 1

    run(scenario)


def test_a_waiting_request_whose_peer_leaves_is_told() -> None:
    async def scenario() -> None:
        app = Application(answer=None)
        host = Host()
        host.disconnect()
        await serve(app)(scope(), host.receive, host.send)
        assert app.pending[0].closed
        assert host.sent == []

    run(scenario)


def test_a_host_that_cannot_send_means_that_the_peer_is_gone() -> None:
    async def scenario() -> None:
        async with following() as (host, exchange, task):
            gone = asyncio.Event()
            exchange.on_closed = gone.set
            host.failure = OSError()
            exchange.send(b"x")
            await gone.wait()
            await task

    run(scenario)


def test_a_cancelled_request_is_told() -> None:
    async def scenario() -> None:
        async with following() as (_, exchange, task):
            gone = asyncio.Event()
            exchange.on_closed = gone.set
            task.cancel()
            await gone.wait()

    run(scenario)


def test_a_broken_off_answer_is_an_error_of_the_application() -> None:
    async def scenario() -> None:
        async with following() as (host, exchange, task):
            gone = asyncio.Event()
            exchange.on_closed = gone.set
            exchange.abort()
            assert gone.is_set()
            with pytest.raises(AnswerBrokenOff):
                await task
            assert len(host.sent) == 1

    run(scenario)


# Life


class Life:
    """A factory that notes when its handler is made and let go."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.events: list[str] = []
        self.failure = failure

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Application]:
        self.events.append("start")
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        yield Application()
        self.events.append("stop")


def lifespan_host(*phases: str) -> Host:
    host = Host()
    host.incoming = asyncio.Queue()
    for phase in phases:
        host.incoming.put_nowait({"type": f"lifespan.{phase}"})
    return host


def test_the_handler_lives_as_long_as_the_host_says() -> None:
    async def scenario() -> None:
        life = Life()
        app = AsgiApp(life)
        host = lifespan_host("startup")
        living = asyncio.ensure_future(app({"type": "lifespan"}, host.receive, host.send))
        await host.arrived.wait()
        request = Host()
        await app(scope(), request.receive, request.send)
        assert (request.status, life.events) == (200, ["start"])
        host.incoming.put_nowait({"type": "lifespan.shutdown"})
        await living
        assert life.events == ["start", "stop"]
        assert [message["type"] for message in host.sent] == [
            "lifespan.startup.complete",
            "lifespan.shutdown.complete",
        ]

    run(scenario)


def test_a_failing_start_is_told_to_the_host() -> None:
    async def scenario() -> None:
        host = lifespan_host("startup", "shutdown")
        app = AsgiApp(Life(RuntimeError("no disk")))
        await app({"type": "lifespan"}, host.receive, host.send)
        assert host.sent == [{"type": "lifespan.startup.failed", "message": "no disk"}]

    run(scenario)


def test_an_application_around_it_takes_its_lifespan_into_its_own() -> None:
    async def scenario() -> None:
        life = Life()
        app = AsgiApp(life)
        outer = object()
        async with app.lifespan(outer):
            assert life.events == ["start"], "before the first request"
        assert life.events == ["start", "stop"]

    run(scenario)


def test_without_a_lifespan_the_first_request_starts_the_handler() -> None:
    async def scenario() -> None:
        life = Life()
        app = AsgiApp(life)
        hosts = [Host() for _ in range(5)]
        await asyncio.gather(*(app(scope(), host.receive, host.send) for host in hosts))
        assert [host.status for host in hosts] == [200] * 5
        await app.stop()
        await app.stop()
        assert life.events == ["start", "stop"]

    run(scenario)


def test_websockets_are_turned_away() -> None:
    async def scenario() -> None:
        host = Host()
        host.incoming = asyncio.Queue()
        host.incoming.put_nowait({"type": "websocket.connect"})
        await serve(Application())({"type": "websocket"}, host.receive, host.send)
        assert host.sent == [{"type": "websocket.close"}]

    run(scenario)
