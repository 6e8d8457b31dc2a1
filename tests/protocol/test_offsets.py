import pytest

from perennial.protocol.offsets import (
    BEGINNING,
    BEYOND_ANY_TAIL,
    NOW,
    format_offset,
    parse_offset,
)
from perennial.protocol.rejections import Malformed


@pytest.mark.parametrize(
    ("position", "token"),
    [
        (0, "0000000000000000"),
        (1, "0000000000000001"),
        (1024, "0000000000001024"),
        (9_999_999_999_999_999, "9999999999999999"),
    ],
)
def test_a_position_is_sixteen_digits_and_back(position: int, token: str) -> None:
    assert format_offset(position) == token
    assert parse_offset(token) == position


def test_the_pair_form_of_the_reference_is_understood() -> None:
    assert parse_offset("0000000000000000_0000000000000000") == 0
    assert parse_offset("0000000000000000_0000000000000042") == 42


@pytest.mark.parametrize("token", ["0000000000000001_0000000000000000", "9999999999999999_9999999999999999"])
def test_a_pair_with_another_first_number_lies_beyond_any_tail(token: str) -> None:
    assert parse_offset(token) == BEYOND_ANY_TAIL
    assert parse_offset("9" * 16) < BEYOND_ANY_TAIL  # type: ignore[operator]


@pytest.mark.parametrize(
    "token",
    [
        "",
        BEGINNING,
        NOW,
        "0",
        "000000000000000",
        "00000000000000000",
        "+000000000000001",
        "-000000000000001",
        "000000000000000a",
        "0000000000000001\n",
        "0000000000000001\r\n",
        " 0000000000000001",
        "0000000000000001 ",
        "0000000000000000_",
        "_0000000000000000",
        "0000000000000000_00",
        "0000000000000000-0000000000000000",
        "0000000000000000_0000000000000000_0000000000000000",
        "00000000,0000000",
        "../../etc/passwd",
        "000000000000000\0",
        "\u0663" * 16,  # digits, but not ours
        "0_00000000000000",
    ],
)
def test_anything_else_is_malformed(token: str) -> None:
    assert isinstance(parse_offset(token), Malformed)


def test_a_refusal_quotes_only_the_beginning_of_a_long_token() -> None:
    rejected = parse_offset("x" * 10_000)
    assert isinstance(rejected, Malformed)
    assert len(rejected.message) < 200
