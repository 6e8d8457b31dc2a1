"""Offsets, entity tags and cursors: small values with laws of their own."""

from hypothesis import given
from hypothesis import strategies as st

from perennial.protocol.conditional import make_etag, matches
from perennial.protocol.cursors import EPOCH_MS, INTERVAL_SECONDS, next_cursor, parse_cursor
from perennial.protocol.headers import LAST_INSTANT_MS, format_instant, parse_expires_at
from perennial.protocol.offsets import BEGINNING, NOW, format_offset, parse_offset
from perennial.protocol.rejections import Malformed

positions = st.integers(0, 10**16 - 1)


@given(positions)
def test_an_offset_comes_back_as_it_was(position: int) -> None:
    token = format_offset(position)
    assert parse_offset(token) == position
    assert parse_offset(f"{0:016d}_{token}") == position
    assert token not in (BEGINNING, NOW)
    assert not set(token) & set(",&=?/")


@given(positions, positions)
def test_offsets_sort_as_text_like_they_sort_as_numbers(first: int, second: int) -> None:
    assert (format_offset(first) < format_offset(second)) == (first < second)
    assert (format_offset(first) == format_offset(second)) == (first == second)


@given(st.text() | st.from_regex(r"[0-9_\-+ \n]{10,40}", fullmatch=True))
def test_no_token_is_read_that_could_not_be_meant(token: str) -> None:
    position = parse_offset(token)
    assert isinstance(position, Malformed) or token.replace("_", "").isascii()
    if not isinstance(position, Malformed):
        assert token[-16:].isdigit()
        assert len(token) in (16, 33)


opaque = st.text(st.characters(codec="latin-1", exclude_characters='"'), max_size=20)


@given(st.lists(st.tuples(st.booleans(), opaque), max_size=6), opaque)
def test_a_validator_is_found_exactly_when_it_is_in_the_list(
    tags: list[tuple[bool, str]], wanted: str
) -> None:
    header = ", ".join(f'{"W/" if weak else ""}"{tag}"' for weak, tag in tags)
    assert matches(header, f'"{wanted}"') == (wanted in [tag for _, tag in tags])


@given(*[st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 9), st.booleans())] * 2)
def test_equal_etags_mean_equal_answers(
    one: tuple[str, int, int, bool], other: tuple[str, int, int, bool]
) -> None:
    assert (make_etag(*one) == make_etag(*other)) == (one == other)
    assert matches(make_etag(*one), make_etag(*other)) == (one == other)


@given(
    now_ms=st.integers(EPOCH_MS, EPOCH_MS + 10**13),
    client=st.none() | st.integers(0, 10**9),
    jitter_seconds=st.integers(1, 3600),
)
def test_cursors_never_go_back(now_ms: int, client: int | None, jitter_seconds: int) -> None:
    current = (now_ms - EPOCH_MS) // 1000 // INTERVAL_SECONDS
    cursor = next_cursor(now_ms, client, jitter_seconds)
    assert cursor >= current
    if client is not None:
        assert cursor > client
        assert cursor - max(client, current) <= 3600 // INTERVAL_SECONDS
    assert parse_cursor(str(cursor)) == cursor


@given(st.integers(0, LAST_INSTANT_MS))
def test_an_instant_comes_back_to_the_millisecond(at_ms: int) -> None:
    assert parse_expires_at(format_instant(at_ms)) == at_ms
