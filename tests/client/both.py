"""One set of tests for both clients: `AsyncClient` made to look like `Client`, and a server for them."""

import asyncio
import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from perennial.client import AsyncClient, Client
from tests.extensions.api import Api, Bucket
from tests.harness.server import ServerProcess

# Connections end early and often, so that taking them up again is what is tested.
SETTINGS = {"PERENNIAL_LONG_POLL_TIMEOUT": "0.3", "PERENNIAL_SSE_MAX_AGE": "0.5"}


class Blocking:
    """Anything asynchronous, without the waiting: coroutines are run, iterators and contexts become plain."""

    def __init__(self, wrapped: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._wrapped = wrapped
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._wrapped, name)
        if callable(value):
            return lambda *args, **named: self._settle(value(*args, **named))
        return value

    @property
    def snapshot(self) -> Any:
        """A property of `Bootstrap`, a method of everything else."""
        method = self._wrapped.snapshot
        if type(self._wrapped).__name__ == "AsyncBootstrap":
            return self._settle(method())
        return lambda *args: self._settle(method(*args))

    @property
    def messages(self) -> Any:
        return self._settle(self._wrapped.messages())

    def __iter__(self) -> Iterator[Any]:
        source = aiter(self._wrapped)
        while (item := self._loop.run_until_complete(anext(source, self))) is not self:
            yield item
        close = getattr(source, "aclose", None)
        if close is not None:
            self._loop.run_until_complete(close())

    def __enter__(self) -> "Blocking":
        return Blocking(self._loop.run_until_complete(self._wrapped.__aenter__()), self._loop)

    def __exit__(self, *error: Any) -> Any:
        return self._loop.run_until_complete(self._wrapped.__aexit__(*error))

    def _settle(self, value: Any) -> Any:
        if asyncio.iscoroutine(value):
            return self._loop.run_until_complete(value)
        if hasattr(value, "__aiter__") or hasattr(value, "__aenter__"):
            return Blocking(value, self._loop)
        return value


@contextmanager
def new_client(kind: str, url: str, **settings: Any) -> Iterator[Any]:
    if kind == "sync":
        with Client(url, **settings) as client:
            yield client
        return
    loop = asyncio.new_event_loop()
    wrapped = AsyncClient(url, **settings)
    try:
        yield Blocking(wrapped, loop)
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.run_until_complete(wrapped.close())
        loop.close()


@pytest.fixture(scope="session")
def extensions_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("client") / "data", SETTINGS) as running:
        yield running


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(kind: str, extensions_host: ServerProcess) -> Iterator[Any]:
    with new_client(kind, extensions_host.url) as made:
        yield made


@pytest.fixture
def bucket(extensions_host: ServerProcess) -> Bucket:
    """To prepare and check with, by other means than the client under test."""
    return Api(extensions_host.port).new_bucket()


class _WithoutEvents(BaseHTTPRequestHandler):
    """Forwards GET and HEAD, except that event streams end before their first event."""

    protocol_version = "HTTP/1.1"
    target_port = 0
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if "live=sse" in self.path:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.target_port)
        connection.request(self.command, self.path)
        answer = connection.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date"):
                self.send_header(name, value)
        if answer.status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        connection.close()

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def gateway_without_events(port: int) -> Iterator[tuple[str, list[str]]]:
    """Its URL, and the paths it was asked for."""
    asked: list[str] = []
    handler = type("Handler", (_WithoutEvents,), {"target_port": port, "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
