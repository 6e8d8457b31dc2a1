"""The official client against a server that goes away and a network that breaks: no loss, nothing twice."""

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import httpx
import pytest
from durable_streams import DurableStream, DurableStreamError, SeqConflictError, stream

from tests.harness.cutting_proxy import CuttingProxy
from tests.harness.server import ServerProcess

PATIENCE_SECONDS = 20.0
JSON = "application/json"
END = {"end": True}


class Tail:
    """A reader in a thread: it follows a JSON stream, and resumes wherever it was after any failure.

    It gives up nothing by itself: when the server is not there, it waits for `up`.
    """

    def __init__(self, url: str, live: Any) -> None:
        self._url = url
        self._live = live
        self.up = threading.Event()
        self.up.set()
        self.received: SimpleQueue[Any] = SimpleQueue()
        self.sessions = 0
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def expect(self, messages: list[Any]) -> None:
        assert [self.received.get(timeout=PATIENCE_SECONDS) for _ in messages] == messages

    def finish(self) -> None:
        """It has seen the end, and nothing but what was expected before."""
        self.expect([END])
        self._thread.join(PATIENCE_SECONDS)
        assert self.received.empty()

    def _follow(self) -> None:
        offset = "-1"
        while True:
            self.sessions += 1
            try:
                with stream(
                    self._url, offset=offset, live=self._live, on_error=self._retry, timeout=PATIENCE_SECONDS
                ) as response:
                    for event in response.iter_events(mode="json"):
                        for message in event.data:
                            self.received.put(message)
                        if event.data[-1] == END:
                            return
                        offset = event.next_offset
            except httpx.TransportError:
                pass  # in the middle of an answer

    def _retry(self, error: Exception) -> dict[str, Any]:
        assert isinstance(error, httpx.TransportError), error
        assert self.up.wait(PATIENCE_SECONDS)
        return {}


@pytest.mark.parametrize("live", ["long-poll", "sse"])
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_tail_goes_on_after_a_restart(server: ServerProcess, live: str, ending: str) -> None:
    url = f"{server.url}/v1/stream/tailed"
    with DurableStream.create(url, content_type=JSON) as handle:
        handle.append({"number": 0})
        tail = Tail(url, live)
        tail.expect([{"number": 0}])
        for number in range(1, 3):
            tail.up.clear()
            if ending == "kill":
                server.kill()
            server.restart()
            handle.append({"number": number})  # before the reader is back, or after
            tail.up.set()
            tail.expect([{"number": number}])
        handle.append(END)
        tail.finish()


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_a_tail_goes_on_after_its_connection_was_cut(
    shared_server: ServerProcess, url: str, live: str
) -> None:
    with (
        CuttingProxy(shared_server.port) as proxy,
        DurableStream.create(url, content_type=JSON) as handle,
    ):
        tail = Tail(url.replace(shared_server.url, proxy.url), live)
        for number in range(10):
            handle.append({"number": number})
            if number % 3 == 1:
                proxy.cut()
            tail.expect([{"number": number}])
        handle.append(END)
        tail.finish()
        assert tail.sessions > 1 or live == "long-poll"  # a poll that is cut is simply asked again


class ProducerSession:
    """An idempotent producer, made of the client's dynamic headers: one epoch, numbers that count up."""

    def __init__(self, url: str, identity: str, epoch: int) -> None:
        self.seq = 0
        self.handle = DurableStream(
            url,
            content_type=JSON,
            batching=False,
            headers={
                "Producer-Id": identity,
                "Producer-Epoch": str(epoch),
                "Producer-Seq": lambda: str(self.seq),
            },
        )

    def produce(self, message: Any, attempts: int = 1) -> None:
        """Send until it is acknowledged; the number stays the same, so it counts once."""
        for attempt in range(attempts):
            try:
                self.handle.append(message)
                self.seq += 1
                return
            except httpx.TransportError:
                if attempt == attempts - 1:
                    raise


@pytest.fixture
def messages(url: str) -> Iterator["Messages"]:
    with DurableStream.create(url, content_type=JSON) as handle:
        yield Messages(handle)


class Messages:
    """What is in a stream."""

    def __init__(self, handle: DurableStream) -> None:
        self._handle = handle

    def read(self) -> list[Any]:
        with self._handle.stream() as response:
            found: list[Any] = response.read_json()
            return found


def test_a_producer_whose_answers_are_lost_writes_everything_once(
    shared_server: ServerProcess, url: str, messages: Messages
) -> None:
    with CuttingProxy(shared_server.port) as proxy:
        session = ProducerSession(url.replace(shared_server.url, proxy.url), "p", epoch=0)
        with session.handle:
            for number in range(12):
                if number % 3 == 0:
                    proxy.lose_answers(2)
                elif number % 3 == 1:
                    proxy.cut()
                session.produce({"number": number}, attempts=5)
        assert proxy.lost_answers == 8
    assert messages.read() == [{"number": number} for number in range(12)]


def test_without_a_producer_a_lost_answer_means_twice(
    shared_server: ServerProcess, url: str, messages: Messages
) -> None:
    """The counterpart: it shows that the proxy loses answers and not requests."""
    with CuttingProxy(shared_server.port) as proxy:
        proxied = url.replace(shared_server.url, proxy.url)
        with DurableStream(proxied, content_type=JSON) as handle:
            proxy.lose_answers(1)
            with pytest.raises(httpx.TransportError):
                handle.append("hello")
            handle.append("hello")
    assert messages.read() == ["hello", "hello"]


def test_a_new_session_fences_the_old_one(url: str, messages: Messages) -> None:
    old = ProducerSession(url, "p", epoch=0)
    new = ProducerSession(url, "p", epoch=1)
    with old.handle, new.handle:
        old.produce("old")
        new.produce("new")
        with pytest.raises(DurableStreamError) as raised:
            old.produce("zombie")
        assert raised.value.status == 403
        new.produce("newer")
    assert messages.read() == ["old", "new", "newer"]


def test_a_number_left_out_is_noticed(url: str, messages: Messages) -> None:
    session = ProducerSession(url, "p", epoch=0)
    with session.handle:
        session.produce("first")
        session.seq += 1
        with pytest.raises(SeqConflictError):
            session.produce("third")
    assert messages.read() == ["first"]


def test_a_producer_goes_on_after_a_crash(server: ServerProcess) -> None:
    url = f"{server.url}/v1/stream/produced"
    with DurableStream.create(url, content_type=JSON) as handle:
        session = ProducerSession(url, "p", epoch=3)
        with session.handle:
            session.produce("first")
            server.kill()
            with pytest.raises(httpx.TransportError):
                session.produce("second")
            server.start()
            session.seq -= 1
            session.produce("first")  # was acknowledged, and still is
            session.produce("second")
        assert Messages(handle).read() == ["first", "second"]
