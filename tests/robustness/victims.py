"""A server that is sent nonsense, and two streams on it that no nonsense may change."""

from collections.abc import Mapping
from typing import NamedTuple

from tests.harness.wire import Answer, Wire

ROOT = "/v1/stream/"
TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
MAX_BODY = 1 << 20


class Streams(NamedTuple):
    """A text stream and a JSON stream with something in them, which no refused request may change."""

    port: int
    text: str
    json: str

    def look(self) -> list[tuple[int, dict[str, str]]]:
        with Wire(self.port) as wire:
            answers = [wire.request("HEAD", ROOT + name) for name in (self.text, self.json)]
        for answer in answers:
            answer.headers.pop("date")
        return [(answer.status, answer.headers) for answer in answers]


def ask(
    streams: Streams, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> Answer:
    with Wire(streams.port) as wire:
        return wire.request(method, ROOT + path, headers, body)


def speak(streams: Streams, raw: bytes) -> Answer:
    """Send bytes as they are; the server answers and then wants no more of this connection."""
    with Wire(streams.port) as wire:
        wire.send(raw)
        return wire.answer()


def assert_refused(answer: Answer, *statuses: int) -> None:
    assert answer.status in (statuses or (400,)), answer
    assert len(answer.reason) > 10, answer  # a sentence, not a shrug
    assert answer.headers["x-content-type-options"] == "nosniff"
