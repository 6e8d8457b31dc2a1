"""A crowd of SSE subscribers and the writers they listen to, in one process with one clock.

Every message says which number it has in its stream, so a subscriber knows whether one is missing, came twice
or overtook another. A subscription that the server ends is opened again where it ended, on a new connection.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from benchmarks.errors import BenchmarkError
from benchmarks.streams import PREFIX, TEXT

BODY_BYTES = 256
WRITERS = 16
# One address has some 28,000 ports; connections that were closed lately hold theirs for a minute more.
LOCAL_ADDRESSES = 8
CONNECTS_AT_ONCE = 128
PATIENCE_SECONDS = 60.0
QUIET_SECONDS = 1.0  # after the last delivery, for any that come twice
MESSAGE = re.compile(rb"#([0-9]+);")

Message = tuple[int, int]


def stream_name(number: int) -> str:
    return f"live-{number}"


@dataclass
class Findings:
    """What the subscribers saw. Moments are in nanoseconds; messages are named by stream and number."""

    due: dict[Message, int] = field(default_factory=dict)  # when it should be sent
    acknowledged: dict[Message, int] = field(default_factory=dict)
    delivered: list[tuple[Message, int]] = field(default_factory=list)
    missing: int = 0
    repeated: int = 0
    refused_appends: int = 0
    refused: int = 0  # subscriptions
    broken: int = 0  # subscriptions that ended in the middle of an answer
    reconnected: int = 0

    def acknowledged_ms(self) -> list[float]:
        return [(moment - self.due[message]) / 1e6 for message, moment in self.acknowledged.items()]

    def delivered_ms(self) -> list[float]:
        """Counted from the moment a message was due, so that a load which falls behind cannot hide it."""
        return [(moment - self.due[message]) / 1e6 for message, moment in self.delivered]

    def delivered_after_acknowledgement_ms(self) -> list[float]:
        """Without the time the disk took."""
        known = self.acknowledged
        return [(moment - known[message]) / 1e6 for message, moment in self.delivered if message in known]

    def faults(self) -> list[str]:
        kinds = {
            "messages missing": self.missing,
            "messages twice or out of order": self.repeated,
            "appends failed": self.refused_appends,
            "subscriptions refused": self.refused,
            "subscriptions broken off": self.broken,
        }
        return [f"{count} {kind}" for kind, count in kinds.items() if count]


class Crowd:
    def __init__(self, port: int, subscribers: int, streams: int) -> None:
        self.port = port
        self.streams = streams
        self.found = Findings()
        self.leaving = False
        self._unheard = subscribers
        self._all_heard = asyncio.Event()
        self._owed = 0  # deliveries of what was sent
        self._sending = True
        self._all_delivered = asyncio.Event()
        self._gate = asyncio.Semaphore(CONNECTS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscribers = [Subscriber(self, number) for number in range(subscribers)]
        self._writers = [Writer(self) for _ in range(min(WRITERS, streams))]

    async def gather(self) -> None:
        """Until every subscriber has heard from the server."""
        loop = asyncio.get_running_loop()
        for writer in self._writers:
            await loop.create_connection(partial(_itself, writer), "127.0.0.1", self.port)
        for subscriber in self._subscribers:
            self.connect(subscriber)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._all_heard.wait()
        except TimeoutError:
            raise BenchmarkError(f"{self._unheard} subscribers did not hear from the server") from None

    async def listen(self, messages_per_second: float, seconds: float) -> None:
        """Send messages at a steady pace, whatever becomes of them, to one stream after the other."""
        period_ns = int(1e9 / messages_per_second)
        begun = time.monotonic_ns()
        audience = Counter(each.stream for each in self._subscribers)
        for count in range(int(messages_per_second * seconds)):
            due = begun + count * period_ns
            await asyncio.sleep(max(0.0, (due - time.monotonic_ns()) / 1e9))
            number, stream = divmod(count, self.streams)
            self.found.due[stream, number] = due
            self._owed += audience[stream]
            # One writer per stream: two connections could overtake each other.
            self._writers[stream % len(self._writers)].append((stream, number))
        self._sending = False
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS if self._owed else 0):
                await self._all_delivered.wait()
        await asyncio.sleep(QUIET_SECONDS)
        self.found.missing = self._owed

    async def leave(self) -> None:
        self.leaving = True
        for subscriber in self._subscribers:
            subscriber.close()
        for writer in self._writers:
            writer.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def connect(self, subscriber: Subscriber) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(subscriber))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def heard(self) -> None:
        self._unheard -= 1
        if not self._unheard:
            self._all_heard.set()

    def delivered(self, message: Message, arrived: int) -> None:
        self.found.delivered.append((message, arrived))
        self._owed -= 1
        if not self._owed and not self._sending:
            self._all_delivered.set()

    async def _connect(self, subscriber: Subscriber) -> None:
        loop = asyncio.get_running_loop()
        itself = partial(_itself, subscriber)
        local = (f"127.0.0.{1 + subscriber.number % LOCAL_ADDRESSES}", 0)
        async with self._gate:
            if self.leaving:
                return
            try:
                await loop.create_connection(itself, "127.0.0.1", self.port, local_addr=local)
            except OSError:
                self.found.refused += 1


def _itself(protocol: asyncio.Protocol) -> asyncio.Protocol:
    return protocol


class Subscriber(asyncio.Protocol):
    """Follows one stream over as many connections as it takes."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self.number = number
        self.stream = number % crowd.streams
        self._next = 0  # the number of the message that should come
        self._crowd = crowd
        self._offset = "now"
        self._heard = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._answer = bytearray()
        self._events = b""
        self._in_body = self._ended = False
        target = f"{PREFIX}{stream_name(self.stream)}?offset={self._offset}&live=sse"
        self._transport.write(
            f"GET {target} HTTP/1.1\r\nHost: live\r\nAccept: text/event-stream\r\n\r\n".encode("ascii")
        )

    def data_received(self, data: bytes) -> None:
        arrived = time.monotonic_ns()
        self._answer += data
        if not self._in_body and not self._take_head():
            return
        while (chunk := self._take_chunk()) is not None:
            *events, self._events = (self._events + chunk).split(b"\n\n")
            for event in events:
                self._take_event(event, arrived)

    def connection_lost(self, exc: Exception | None) -> None:
        crowd = self._crowd
        if crowd.leaving:
            return
        if not self._in_body:
            crowd.found.refused += 1
            return
        if not self._ended:
            crowd.found.broken += 1
        crowd.found.reconnected += 1
        crowd.connect(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _take_head(self) -> bool:
        head, end, rest = self._answer.partition(b"\r\n\r\n")
        if not end:
            return False
        if not head.startswith(b"HTTP/1.1 200 "):
            self.close()
            return False
        self._answer = rest
        self._in_body = True
        return True

    def _take_chunk(self) -> bytes | None:
        """The next chunk of the answer, if it is there. An empty one ends the answer, and the connection."""
        line = self._answer.find(b"\r\n")
        if line < 0:
            return None
        size = int(self._answer[:line], 16)
        if len(self._answer) < line + 2 + size + 2:
            return None
        chunk = bytes(self._answer[line + 2 : line + 2 + size])
        del self._answer[: line + 2 + size + 2]
        if size:
            return chunk
        self._ended = True
        assert self._transport is not None, "it brought us the chunk"
        self._transport.close()
        return None

    def _take_event(self, event: bytes, arrived: int) -> None:
        if event.startswith(b"event: data"):
            for number in map(int, MESSAGE.findall(event)):
                self._take_message(number, arrived)
        elif event.startswith(b"event: control"):
            self._offset = json.loads(event.partition(b"data:")[2])["streamNextOffset"]
            if not self._heard:
                self._heard = True
                self._crowd.heard()

    def _take_message(self, number: int, arrived: int) -> None:
        if number < self._next:
            self._crowd.found.repeated += 1
            return
        self._next = number + 1
        self._crowd.delivered((self.stream, number), arrived)


class Writer(asyncio.Protocol):
    """Sends without waiting for answers; they come in order."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._transport: asyncio.Transport | None = None
        self._answers = b""
        self._unanswered: deque[Message] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def append(self, message: Message) -> None:
        assert self._transport is not None, "connected before anything is sent"
        stream, number = message
        head = (
            f"POST {PREFIX}{stream_name(stream)} HTTP/1.1\r\nHost: live\r\n"
            f"Content-Type: {TEXT}\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
        )
        self._unanswered.append(message)
        self._transport.write(head.encode("ascii") + (b"#%d;" % number).ljust(BODY_BYTES, b"."))

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        # A 204 has no body; anything else makes the run a failure, so its body need not be understood.
        *answers, self._answers = (self._answers + data).split(b"\r\n\r\n")
        for answer in answers:
            if answer.startswith(b"HTTP/1.1 204 ") and self._unanswered:
                self._crowd.found.acknowledged[self._unanswered.popleft()] = now
            else:
                self._crowd.found.refused_appends += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.found.refused_appends += len(self._unanswered)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
