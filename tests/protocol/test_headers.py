from datetime import UTC, datetime

import pytest

from perennial.protocol.headers import (
    LARGEST_SAFE_INTEGER,
    format_instant,
    parse_closed,
    parse_count,
    parse_expires_at,
    parse_producer,
)
from perennial.protocol.rejections import Malformed
from perennial.protocol.state import ProducerClaim


@pytest.mark.parametrize("value", ["true", "TRUE", "True", "tRuE"])
def test_closed_is_true_in_any_letter_case(value: str) -> None:
    assert parse_closed(value)


@pytest.mark.parametrize("value", [None, "", "false", "yes", "1", "true ", " true", "true, true", "t rue"])
def test_closed_is_nothing_but_true(value: str | None) -> None:
    assert not parse_closed(value)


# Counts


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("1", 1), ("60", 60), ("3600", 3600), (str(2**53 - 1), 2**53 - 1)]
)
def test_a_count_is_a_plain_decimal(text: str, number: int) -> None:
    assert parse_count("Stream-TTL", text) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        "-1",
        "+60",
        "00060",
        "05",
        "00",
        "60.5",
        "60.0",
        "1e3",
        " 60",
        "60 ",
        "6_0",
        "\u0663",
        "60\n",
        "0x10",
    ],
)
def test_a_count_has_no_sign_zeros_point_or_exponent(text: str) -> None:
    rejected = parse_count("Stream-TTL", text)
    assert isinstance(rejected, Malformed)
    assert rejected.message.startswith("Stream-TTL ")


@pytest.mark.parametrize("text", [str(2**53), "9" * 16, "9" * 17, "1" + "0" * 30_000])
def test_a_count_stays_a_safe_integer_however_long_it_is(text: str) -> None:
    assert isinstance(parse_count("Stream-TTL", text), Malformed)


# Instants


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2030-01-15T12:00:00Z", 1_894_708_800_000),
        ("2030-01-15T12:00:00+00:00", 1_894_708_800_000),
        ("2030-01-15T13:30:00+01:30", 1_894_708_800_000),
        ("2030-01-15T07:00:00-05:00", 1_894_708_800_000),
        ("2030-01-15t12:00:00z", 1_894_708_800_000),
        ("2030-01-15T12:00:00.5Z", 1_894_708_800_500),
        ("2030-01-15T12:00:00.250Z", 1_894_708_800_250),
        ("2030-01-15T12:00:00.123456789Z", 1_894_708_800_123),
    ],
)
def test_an_expiry_is_an_instant_whatever_its_zone(text: str, at_ms: int) -> None:
    assert parse_expires_at(text) == at_ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2030-01-15",
        "2030-01-15T12:00:00",  # no zone
        "2030-01-15 12:00:00Z",
        "2030-01-15T12:00Z",
        "20300115T120000Z",
        "2030-W03-2T12:00:00Z",
        "2030-02-30T12:00:00Z",
        "2030-13-01T12:00:00Z",
        "2030-01-15T25:00:00Z",
        "2030-01-15T12:00:00.Z",
        "2030-01-15T12:00:00.1234567890Z",
        "2030-01-15T12:00:00,5Z",
        "2030-01-15T12:00:00+0000",
        "2030-01-15T12:00:00+24:00",
        "2030-01-15T12:00:00Z\n",
        "+2030-01-15T12:00:00Z",
        "1894708800",
        "\u0662\u0660\u0663\u0660-01-15T12:00:00Z",
    ],
)
def test_an_expiry_is_strict_rfc_3339(text: str) -> None:
    assert isinstance(parse_expires_at(text), Malformed)


@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59.9999Z"]
)
def test_an_expiry_at_the_end_of_the_calendar_can_be_told_back(text: str) -> None:
    """HEAD echoes it, and a calendar that ends with 9999 must not break there."""
    at_ms = parse_expires_at(text)
    assert isinstance(at_ms, Malformed) or format_instant(at_ms).startswith("9999-")


@pytest.mark.parametrize(
    "text", ["1969-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "1970-01-01T00:00:00+01:00"]
)
def test_an_expiry_before_the_epoch_has_passed_like_the_epoch_itself(text: str) -> None:
    """Stored deadlines are unsigned."""
    assert parse_expires_at(text) == 0


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [(0, "1970-01-01T00:00:00.000Z"), (1_894_708_800_007, "2030-01-15T12:00:00.007Z")],
)
def test_an_instant_is_told_to_the_millisecond(at_ms: int, text: str) -> None:
    assert format_instant(at_ms) == text
    assert parse_expires_at(text) == at_ms
    assert datetime.fromisoformat(text) == datetime.fromtimestamp(at_ms / 1000, UTC)


# Producers


def test_no_producer_headers_means_no_producer() -> None:
    assert parse_producer(None, None, None) is None


def test_all_producer_headers_make_a_claim() -> None:
    assert parse_producer("p", "0", "0") == ProducerClaim("p", 0, 0)
    assert parse_producer("order-service-1", "12", "345") == ProducerClaim("order-service-1", 12, 345)
    largest = str(LARGEST_SAFE_INTEGER)
    assert parse_producer("p", largest, largest) == ProducerClaim("p", 2**53 - 1, 2**53 - 1)


@pytest.mark.parametrize(
    "headers",
    [
        ("p", None, None),
        (None, "0", None),
        (None, None, "0"),
        ("p", "0", None),
        ("p", None, "0"),
        (None, "0", "0"),
    ],
)
def test_some_producer_headers_are_not_enough(headers: tuple[str | None, str | None, str | None]) -> None:
    assert isinstance(parse_producer(*headers), Malformed)


def test_a_producer_has_a_name() -> None:
    assert isinstance(parse_producer("", "0", "0"), Malformed)


@pytest.mark.parametrize(
    "number", ["", "-1", "+1", "1.0", "1e3", "abc", " 1", "1 ", "1_0", "\u0663", "0x1", "1\n"]
)
def test_epoch_and_sequence_are_whole_numbers(number: str) -> None:
    for claim in (parse_producer("p", number, "0"), parse_producer("p", "0", number)):
        assert isinstance(claim, Malformed)


@pytest.mark.parametrize("number", [str(2**53), "9" * 17, "1" * 20_000])
def test_epoch_and_sequence_are_safe_integers(number: str) -> None:
    for claim in (parse_producer("p", number, "0"), parse_producer("p", "0", number)):
        assert isinstance(claim, Malformed)


def test_leading_zeros_of_epoch_and_sequence_mean_nothing() -> None:
    assert parse_producer("p", "007", "00") == ProducerClaim("p", 7, 0)


def test_a_great_many_leading_zeros_are_no_accident_of_ours() -> None:
    """Python refuses to convert more than 4300 digits, which must not become a failure of the server."""
    claim = parse_producer("p", "0" * 5000, "0" * 5000 + "1")
    assert isinstance(claim, Malformed) or claim == ProducerClaim("p", 0, 1)
