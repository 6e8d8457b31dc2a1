import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from perennial.spark.errors import BadOption, PipelineError
from perennial.spark.folds import apply_merge_patch, find_fold


def fold(name: str, messages: list[Any], key: str | None = None, snapshot: Any = None) -> Any:
    before = None if snapshot is None else json.dumps(snapshot).encode()
    return json.loads(find_fold(name)(before, [json.dumps(message).encode() for message in messages], key))


def change(operation: str, key: str, value: Any = None, kind: str = "user") -> dict[str, Any]:
    return {"type": kind, "key": key, "value": value, "headers": {"operation": operation}}


def test_latest_by_key_keeps_the_last_of_each() -> None:
    messages = [{"u": {"id": 1}, "v": 1}, {"u": {"id": "1"}, "v": 2}, {"u": {"id": 1}, "v": 3}]
    assert fold("latest-by-key", messages, "u.id") == [messages[2], messages[1]]


def test_state_comes_to_what_is_left() -> None:
    events = [
        change("insert", "1", "a"),
        change("insert", "2", "b"),
        change("update", "1", "c"),
        change("delete", "2"),
    ]
    assert fold("state", events) == [change("insert", "1", "c")]
    assert fold("state", [*events, {"headers": {"control": "reset"}}, change("insert", "9", 0)]) == [
        change("insert", "9", 0)
    ]


# The cases of RFC 7386, appendix A.
@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(target: Any, patch: Any, result: Any) -> None:
    assert apply_merge_patch(target, patch) == result


@pytest.mark.parametrize(
    ("name", "messages", "key"),
    [
        ("latest-by-key", [{"id": n % 3, "n": n} for n in range(9)], "id"),
        ("merge-patch", [{"a": n, f"k{n}": n} for n in range(4)] + [{"k1": None}], None),
        ("state", [change("insert", str(n), n) for n in range(5)] + [change("delete", "3")], None),
        ("concat", [1, "two", [3]], None),
    ],
)
def test_folding_in_two_steps_is_folding_in_one(name: str, messages: list[Any], key: str | None) -> None:
    for cut in range(1, len(messages)):
        first = fold(name, messages[:cut], key)
        assert fold(name, messages[cut:], key, first) == fold(name, messages, key)


def own(snapshot: bytes | None, messages: Iterable[bytes], key: str | None) -> bytes:
    return str(len(list(messages))).encode()


def test_your_own_fold_is_found_by_name() -> None:
    found: Callable[..., bytes] = find_fold(f"{__name__}:own")
    assert found(None, [b"a", b"b"], None) == b"2"


@pytest.mark.parametrize("name", ["nothing", "no.such.module:fold", "json:nothing"])
def test_an_unknown_fold_says_so(name: str) -> None:
    with pytest.raises(BadOption, match="fold"):
        find_fold(name)


def test_messages_of_the_wrong_kind_are_named() -> None:
    with pytest.raises(PipelineError, match="no 'id'"):
        fold("latest-by-key", [{"x": 1}], "id")
    with pytest.raises(PipelineError, match="no change event"):
        fold("state", [{"x": 1}])
