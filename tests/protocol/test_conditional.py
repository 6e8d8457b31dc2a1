import pytest

from perennial.protocol.conditional import cache_control, make_etag, matches

ETAG = make_etag("2a-1", 0, 10, closed_at_end=False)


def test_an_etag_is_quoted_and_says_which_bytes_of_which_stream() -> None:
    assert ETAG == '"2a-1:0:10"'
    assert make_etag("2a-1", 5, 10, closed_at_end=True) == '"2a-1:5:10:c"'


def test_an_etag_changes_with_everything_that_makes_the_answer() -> None:
    tags = {
        make_etag(incarnation, start, end, closed)
        for incarnation in ("1-1", "1-2", "2-1")
        for start in (0, 1)
        for end in (1, 2, 11)
        for closed in (False, True)
    }
    assert len(tags) == 3 * 2 * 3 * 2


@pytest.mark.parametrize(
    "header",
    [
        ETAG,
        f"W/{ETAG}",
        "*",
        " * ",
        f'"other", {ETAG}',
        f'{ETAG}, "other"',
        f'"a",{ETAG},"b"',
        f'W/"a", W/{ETAG}',
        f'"with, comma", {ETAG}',
        f"  {ETAG}  ",
    ],
)
def test_a_matching_validator_is_found_in_all_its_forms(header: str) -> None:
    assert matches(header, ETAG)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        '""',
        '"other"',
        "2a-1:0:10",
        '"2a-1:0:1"',
        '"2a-1:0:10:c"',
        '"x2a-1:0:10"',
        'W/"other", "another"',
        '"*"',
        "**",
        '"2a-1:0:10',
    ],
)
def test_other_validators_do_not_match(header: str | None) -> None:
    assert not matches(header, ETAG)


def test_data_may_be_cached_for_a_minute() -> None:
    assert cache_control(None, private=False) == "public, max-age=60, stale-while-revalidate=300"
    assert cache_control(None, private=True) == "private, max-age=60, stale-while-revalidate=300"


@pytest.mark.parametrize(
    ("remaining", "max_age", "stale"),
    [
        (-5, 0, 0),
        (0, 0, 0),
        (1, 1, 0),
        (59, 59, 0),
        (60, 60, 0),
        (100, 60, 40),
        (360, 60, 300),
        (3600, 60, 300),
    ],
)
def test_nothing_is_cached_longer_than_the_stream_may_live(remaining: int, max_age: int, stale: int) -> None:
    expected = f"public, max-age={max_age}, stale-while-revalidate={stale}"
    assert cache_control(remaining, private=False) == expected
