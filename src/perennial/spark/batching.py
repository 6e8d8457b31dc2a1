"""Rows become groups, and groups become requests. The same rows in the same order give the same requests."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from perennial.spark.errors import PipelineError

JSON_TYPE: Final = "application/json"

# (stream, producer or None, content type or None, payload or None, does it close the stream)
Row = tuple[str, str | None, str | None, bytes | None, bool | None]


@dataclass(slots=True)
class Group:
    """Rows of one stream and producer that travel together."""

    stream: str
    producer: str | None
    content_type: str | None
    payloads: list[bytes] = field(default_factory=list)
    size: int = 0
    closes: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    """What one request carries."""

    data: bytes
    rows: int
    closes: bool = False


class Batcher:
    """Gathers rows until a group is full, or until there is too much of everything."""

    def __init__(self, max_rows: int, max_bytes: int, buffer_bytes: int, grouped: bool) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._buffer_bytes = buffer_bytes
        self._grouped = grouped
        self._open: dict[tuple[str, str | None], Group] = {}
        self._size = 0

    def add(self, rows: Sequence[Row]) -> Iterator[list[Group]]:
        """Groups that are ready to go, in waves; those of one stream in order."""
        groups = self._open
        for stream, producer, content_type, payload, closes in rows:
            key = (stream, producer)
            group = groups.get(key)
            if group is None:
                if self._grouped and groups:
                    yield self.finish()
                group = groups[key] = Group(_named(stream), producer, content_type)
            if payload is None:
                if not closes:
                    raise PipelineError(
                        f"a row of stream '{stream}' has no payload; leave such rows out: "
                        "where payload is not null"
                    )
            else:
                group.payloads.append(payload)
                group.size += len(payload)
                self._size += len(payload)
            if closes:
                group.closes = True
            if group.size >= self._max_bytes or len(group.payloads) >= self._max_rows or closes:
                del groups[key]
                self._size -= group.size
                yield [group]
            elif self._size >= self._buffer_bytes:
                yield self.finish()

    def finish(self) -> list[Group]:
        groups = list(self._open.values())
        self._open.clear()
        self._size = 0
        return groups


def encode(group: Group, content_type: str, coalesce: bool) -> list[Body]:
    """One request for a JSON stream; one per message for a stream of bytes, unless they may be joined."""
    payloads = group.payloads
    if not payloads:
        return [Body(b"", 0, group.closes)]
    if media_type(content_type) == JSON_TYPE:
        return [Body(_json_array(group), len(payloads), group.closes)]
    if not all(payloads):
        raise PipelineError(
            f"a row of stream '{group.stream}' has an empty payload, and a stream of bytes has no empty "
            "messages; leave such rows out: where length(payload) > 0"
        )
    if coalesce:
        return [Body(b"".join(payloads), len(payloads), group.closes)]
    last = len(payloads) - 1
    return [Body(data, 1, group.closes and index == last) for index, data in enumerate(payloads)]


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _json_array(group: Group) -> bytes:
    body = b"[" + b",".join(group.payloads) + b"]"
    try:
        messages = msgspec.json.decode(body, type=list[msgspec.Raw])
    except msgspec.DecodeError:
        messages = []
    # Comparing each one also catches rows such as `1,2`, which would become two messages.
    if [bytes(message) for message in messages] != [payload.strip() for payload in group.payloads]:
        raise _not_json(group)
    return body


def _not_json(group: Group) -> PipelineError:
    example = next((payload for payload in group.payloads if not _is_json(payload)), b"")
    return PipelineError(
        f"stream '{group.stream}' holds JSON, and this row's payload is none: {example[:120]!r}. Write "
        "to_json(struct(...)) into the payload, or choose another content type"
    )


def _is_json(payload: bytes) -> bool:
    try:
        msgspec.json.decode(payload)
    except msgspec.DecodeError:
        return False
    return True


def _named(stream: str | None) -> str:
    if not stream:
        raise PipelineError("a row has no stream name; every row needs one in its column 'stream'")
    return stream
