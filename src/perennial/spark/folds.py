"""Folds: what a stream's messages come to, as one snapshot that stands for all of them.

A fold is a function `(snapshot, messages, key) -> bytes`: the last snapshot's bytes or None, the messages
since then in order, and the key given to the job. Your own is named as `module:function`. Its result is
published with the stream's content type.
"""

import importlib
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from perennial.spark.errors import BadOption, PipelineError

Fold = Callable[[bytes | None, Iterable[bytes], str | None], bytes]

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_split = msgspec.json.Decoder(list[msgspec.Raw]).decode


def latest_by_key(snapshot: bytes | None, messages: Iterable[bytes], key: str | None) -> bytes:
    """A JSON array with the last message of every key, in the order in which the keys were first seen."""
    if key is None:
        raise BadOption("the fold latest-by-key needs --key: the path of the key in a message, 'user.id' say")
    path = parse_key(key)
    latest: dict[bytes, bytes] = {}
    for message in (*_elements(snapshot), *messages):
        value = _lookup(_decode(message), path)
        if value is None:
            raise PipelineError(f"a message has no '{key}': {message[:120]!r}")
        latest[_encode(value)] = message
    return _array(latest.values())


def merge_patch(snapshot: bytes | None, messages: Iterable[bytes], key: str | None = None) -> bytes:
    """The document that results when each message is applied as a JSON merge patch (RFC 7386)."""
    document = None if snapshot is None else _decode(snapshot)
    for message in messages:
        document = apply_merge_patch(document, _decode(message))
    return _encode(document)


def state(snapshot: bytes | None, messages: Iterable[bytes], key: str | None = None) -> bytes:
    """Change events (insert, update, delete by type and key) come to the inserts of what is left.

    The snapshot is an array of change events itself, so readers apply it like any others.
    """
    entities: dict[tuple[str, str], bytes] = {}
    for message in (*_elements(snapshot), *messages):
        _apply_event(entities, message)
    return _array(entities.values())


def concat(snapshot: bytes | None, messages: Iterable[bytes], key: str | None = None) -> bytes:
    """All bytes, one after the other; for JSON, all messages in one array."""
    return (snapshot or b"") + b"".join(messages)


def concat_json(snapshot: bytes | None, messages: Iterable[bytes], key: str | None = None) -> bytes:
    return _array((*_elements(snapshot), *messages))


FOLDS: Final[dict[str, Fold]] = {
    "latest-by-key": latest_by_key,
    "merge-patch": merge_patch,
    "state": state,
    "concat": concat,
}


def find_fold(name: str, json: bool = True) -> Fold:
    """A fold by its name, or your own by `module:function`."""
    if name in FOLDS:
        return concat_json if name == "concat" and json else FOLDS[name]
    module, _, function = name.partition(":")
    if not function:
        raise BadOption(
            f"there is no fold '{name}'; there are {', '.join(FOLDS)}, or your own as module:function"
        )
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise BadOption(
            f"cannot find the fold '{name}': {error}. Is its module installed on this machine?"
        ) from None
    if not callable(found):
        raise BadOption(f"'{name}' is not a function")
    return found  # type: ignore[no-any-return]


def needs_json(name: str) -> bool:
    return name in FOLDS and name != "concat"


# Parts


def apply_merge_patch(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), value)
    return result


def parse_key(key: str) -> tuple[str, ...]:
    """`user.id` or `$.user.id`"""
    path = tuple(part for part in key.removeprefix("$").split(".") if part)
    if not path:
        raise BadOption(f"--key is {key!r}; it must be the path of a field, such as 'id' or 'user.id'")
    return path


def _lookup(value: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _apply_event(entities: dict[tuple[str, str], bytes], message: bytes) -> None:
    event = _decode(message)
    headers = event.get("headers") if isinstance(event, dict) else None
    if not isinstance(headers, dict):
        raise PipelineError(f"this message is no change event, it has no headers: {message[:120]!r}")
    if "control" in headers:
        if headers["control"] == "reset":
            entities.clear()
        return
    kind, key, operation = event.get("type"), event.get("key"), headers.get("operation")
    if not isinstance(kind, str) or not isinstance(key, str):
        raise PipelineError(f"a change event needs a type and a key: {message[:120]!r}")
    if operation == "delete":
        entities.pop((kind, key), None)
    elif operation in ("insert", "update", "upsert"):
        kept = {name: value for name, value in event.items() if name != "old_value"}
        entities[kind, key] = _encode({**kept, "headers": {**headers, "operation": "insert"}})
    else:
        raise PipelineError(f"a change event's operation is {operation!r}: {message[:120]!r}")


def _elements(snapshot: bytes | None) -> list[bytes]:
    return [] if not snapshot else [bytes(element) for element in _split(snapshot)]


def _array(messages: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(messages) + b"]"
