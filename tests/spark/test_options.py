import pytest

from perennial.spark.errors import BadOption
from perennial.spark.options import MIB, parse_read_options, parse_size, parse_write_options

GOOD = {"url": "http://127.0.0.1:4437", "bucket": "agents"}


def test_names_are_compared_without_case_and_values_are_parsed() -> None:
    options = parse_read_options({**GOOD, "MAXBYTESPERTRIGGER": "16m", "streams": "a, b", "value": "TRUE"})
    assert options.max_bytes_per_trigger == 16 * MIB
    assert options.streams == ("a", "b")
    assert options.value is True


def test_a_token_is_not_shown() -> None:
    assert "s3cret" not in repr(parse_read_options({**GOOD, "token": "s3cret"}))


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"url": ""}, "set it to the server's address"),
        ({"url": "127.0.0.1:4437"}, "http://127.0.0.1:4437 would be"),
        ({"url": "http://127.0.0.1:4437/v1/stream"}, "without a path"),
        ({"bucket": ""}, "name the bucket"),
        ({"bucket": "No!"}, "4 to 64 of a-z"),
        ({"startingPosition": "soon"}, "a whole number"),
        ({"maxRowsPerTrigger": "0"}, "at least 1"),
        ({"maxBytesPerTrigger": "much"}, "16m or 1g"),
        ({"value": "maybe"}, "say true or false"),
        ({"startingOffset": "3"}, "did you mean 'startingPosition'"),
        ({"streams": "a", "prefix": "b"}, "not both"),
        ({"maxRowsPerTrigger": "1", "maxBytesPerTrigger": "1"}, "not both"),
    ],
)
def test_a_bad_option_says_what_to_fix(given: dict[str, str], advice: str) -> None:
    with pytest.raises(BadOption, match=advice.replace("(", r"\(")):
        parse_read_options({**GOOD, **given})


def test_what_spark_adds_is_not_complained_about() -> None:
    parse_write_options({**GOOD, "checkpointLocation": "/tmp/x", "path": "y"})


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("2k", 2048), ("3 MiB", 3 * MIB), ("1gb", 1024 * MIB)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size("x", text) == size
