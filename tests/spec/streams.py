"""A stream as a client sees it: a URL, and one method per operation of the base protocol."""

import itertools
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.harness.wire import Answer, SseEvent, Wire

TEXT = "text/plain"
JSON = "application/json"
BYTES = "application/octet-stream"
ZERO = "0000000000000000"

_numbers = itertools.count()


class Stream:
    """Keyword arguments are request headers: `stream_ttl="60"` is sent as `stream-ttl: 60`."""

    def __init__(self, port: int, name: str) -> None:
        self.port = port
        self.path = f"/v1/stream/{name}"
        self.common: dict[str, str] = {}
        self.content_type = TEXT

    @classmethod
    def unique(cls, port: int, hint: str) -> "Stream":
        return cls(port, f"{re.sub(r'[^a-zA-Z0-9]+', '-', hint)[:80]}-{next(_numbers)}")

    def ask(self, method: str, query: str = "", body: bytes = b"", /, **headers: str) -> Answer:
        with Wire(self.port) as wire:
            return wire.request(method, self.path + query, self._headers(headers), body)

    def _headers(self, headers: dict[str, str]) -> dict[str, str]:
        return self.common | {name.replace("_", "-"): value for name, value in headers.items()}

    # Writing

    def put(self, body: bytes = b"", content_type: str | None = TEXT, /, **headers: str) -> Answer:
        if content_type is not None:
            headers["content_type"] = content_type
        return self.ask("PUT", "", body, **headers)

    def create(self, body: bytes = b"", content_type: str | None = TEXT, /, **headers: str) -> Answer:
        answer = self.put(body, content_type, **headers)
        assert answer.status == 201, answer
        if content_type is not None:
            self.content_type = content_type
        return answer

    def post(self, body: bytes, content_type: str | None = "", /, **headers: str) -> Answer:
        if content_type is not None:
            headers["content_type"] = content_type or self.content_type
        return self.ask("POST", "", body, **headers)

    def append(self, body: bytes, /, **headers: str) -> str:
        """Returns the new tail."""
        answer = self.post(body, **headers)
        assert answer.status in (200, 204), answer
        return answer.next_offset

    def produce(self, body: bytes, id: str, epoch: int, seq: int, /, **headers: str) -> Answer:
        return self.post(body, producer_id=id, producer_epoch=str(epoch), producer_seq=str(seq), **headers)

    def close(self, **headers: str) -> Answer:
        return self.post(b"", None, stream_closed="true", **headers)

    def delete(self) -> Answer:
        return self.ask("DELETE")

    # Reading

    def head(self) -> Answer:
        return self.ask("HEAD")

    def get(self, offset: str | None = None, /, **headers: str) -> Answer:
        return self.ask("GET", "" if offset is None else f"?offset={offset}", **headers)

    def read(self) -> bytes:
        """Everything, however many requests it takes."""
        data, offset = b"", "-1"
        while True:
            answer = self.get(offset)
            assert answer.status == 200, answer
            data += answer.body
            offset = answer.next_offset
            if "stream-up-to-date" in answer.headers:
                return data

    def messages(self) -> list[Any]:
        found: list[Any] = json.loads(self.get().body)
        return found

    def long_poll(self, offset: str, cursor: str | None = None) -> Answer:
        extra = "" if cursor is None else f"&cursor={cursor}"
        return self.ask("GET", f"?offset={offset}&live=long-poll{extra}")

    @contextmanager
    def waiting(self, query: str) -> Iterator[Wire]:
        """A request that has been sent; its answer is still to be heard."""
        with Wire(self.port) as wire:
            wire.ask("GET", self.path + query, self.common)
            yield wire

    @contextmanager
    def sse(self, offset: str, cursor: str | None = None) -> Iterator["EventStream"]:
        extra = "" if cursor is None else f"&cursor={cursor}"
        with self.waiting(f"?offset={offset}&live=sse{extra}") as wire:
            status, headers = wire.head()
            assert status == 200, status
            yield EventStream(wire, headers)


class EventStream:
    def __init__(self, wire: Wire, headers: dict[str, str]) -> None:
        self.headers = headers
        self.wire = wire
        self._events = wire.events()

    def next(self) -> SseEvent:
        return next(self._events)

    def rest(self) -> list[SseEvent]:
        """All that comes until the server ends the response."""
        return list(self._events)

    def until_up_to_date(self) -> list[SseEvent]:
        """Up to the first control event that says the reader has everything."""
        events = []
        for event in self._events:
            events.append(event)
            if event.kind == "control" and event.control.get("upToDate"):
                break
        return events
