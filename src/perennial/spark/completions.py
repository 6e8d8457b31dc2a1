"""What a language model answered, read out of its API's response, in OpenAI's and Anthropic's styles."""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

_decode = msgspec.json.Decoder().decode

# Each API's own names for the same two numbers.
INPUT_NAMES: Final = ("input_tokens", "prompt_tokens")
OUTPUT_NAMES: Final = ("output_tokens", "completion_tokens")


@dataclass
class Completion:
    model: str | None = None
    text: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def is_one(self) -> bool:
        return self.model is not None and (self.text is not None or self.output_tokens is not None)


def read_completion(body: bytes, headers: Mapping[str, str]) -> Completion | None:
    """None when the body is something else."""
    plain = _plain(body, headers.get("content-encoding", ""))
    found = Completion()
    events = _events(plain) if "text/event-stream" in headers.get("content-type", "") else _whole(plain)
    for event in events:
        _take(found, event)
    return found if found.is_one else None


def _take(found: Completion, event: dict[str, Any]) -> None:
    # Anthropic wraps its first event in `message`, OpenAI's responses wrap their last in `response`.
    for part in (event, event.get("message"), event.get("response")):
        if isinstance(part, dict):
            _take_facts(found, part)
    text = "".join(_texts(event))
    if text:
        found.text = (found.text or "") + text


def _take_facts(found: Completion, part: dict[str, Any]) -> None:
    if isinstance(part.get("model"), str):
        found.model = part["model"]
    usage = part.get("usage")
    if isinstance(usage, dict):
        found.input_tokens = _first_number(usage, INPUT_NAMES, found.input_tokens)
        found.output_tokens = _first_number(usage, OUTPUT_NAMES, found.output_tokens)


def _texts(event: dict[str, Any]) -> Iterator[str]:
    delta = event.get("delta")
    if event.get("type") == "response.output_text.delta" and isinstance(delta, str):
        yield delta
    elif isinstance(delta, dict) and isinstance(delta.get("text"), str):
        yield delta["text"]
    for choice in _dicts(event.get("choices")):
        for holder in (choice.get("delta"), choice.get("message")):
            if isinstance(holder, dict) and isinstance(holder.get("content"), str):
                yield holder["content"]
    if event.get("type") == "message":  # Anthropic's answer in one piece
        yield from (
            block["text"] for block in _dicts(event.get("content")) if isinstance(block.get("text"), str)
        )


def _events(body: bytes) -> Iterator[dict[str, Any]]:
    for line in body.splitlines():
        if line.startswith(b"data:"):
            yield from _whole(line[5:].strip())


def _whole(body: bytes) -> Iterator[dict[str, Any]]:
    try:
        value = _decode(body)
    except msgspec.DecodeError:
        return
    if isinstance(value, dict):
        yield value


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _first_number(usage: dict[str, Any], names: tuple[str, ...], default: int | None) -> int | None:
    return next((usage[name] for name in names if type(usage.get(name)) is int), default)


def _plain(body: bytes, encoding: str) -> bytes:
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        return body
    try:
        return zlib.decompressobj(wbits=47).decompress(body)
    except zlib.error:
        return body
