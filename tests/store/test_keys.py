from collections.abc import Callable

import pytest

from perennial.store import keys


def test_keys_come_apart_as_they_were_put_together() -> None:
    assert keys.parse_stream_key(keys.stream_key("agents", "a/b ü")) == ("agents", "a/b ü")
    assert keys.parse_block_key(keys.block_key(7, 2**50)) == (7, 2**50)
    assert keys.parse_number(keys.number_key(2**63)) == 2**63
    key = keys.stream_key("agents", "a")
    assert keys.parse_expiry_key(keys.expiry_key(12345, key)) == (12345, key)


def test_numbers_sort_as_keys_like_they_sort_as_numbers() -> None:
    numbers = [0, 1, 255, 256, 65_535, 65_536, 2**32, 2**63]
    makers: list[Callable[[int], bytes]] = [
        keys.number_key,
        lambda number: keys.block_key(1, number),
        lambda number: keys.block_key(number, 2**63),
        lambda number: keys.feed_key("agents", number),
        lambda number: keys.expiry_key(number, b"key"),
    ]
    for make in makers:
        made = [make(number) for number in numbers]
        assert made == sorted(made)


def test_no_bucket_lies_between_the_keys_of_another() -> None:
    low, high = keys.stream_key("agents", ""), keys.after(keys.stream_key("agents", ""))
    for bucket in ("agent", "agents0", "agents-", "agents_", "agentt", "aaaa"):
        assert not low <= keys.stream_key(bucket, "x") < high
    assert low <= keys.stream_key("agents", "\U0010ffff") < high


@pytest.mark.parametrize(
    ("key", "after"),
    [(b"a", b"b"), (b"az", b"a{"), (b"a\xff", b"b"), (b"a\x00", b"a\x01"), (b"a\xff\xff", b"b")],
)
def test_the_key_after_all_that_begin_alike(key: bytes, after: bytes) -> None:
    assert keys.after(key) == after
    assert key + b"\xff" * 9 < after
