import pytest

from perennial.protocol.media import check_content_type, is_json, is_text, media_type
from perennial.protocol.rejections import Malformed


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/json", "application/json"),
        ("APPLICATION/Json", "application/json"),
        ("application/json; charset=utf-8", "application/json"),
        ("application/json;charset=utf-8", "application/json"),
        ("text/plain ; charset=utf-8", "text/plain"),
        ("image/svg+xml", "image/svg+xml"),
    ],
)
def test_letter_case_and_parameters_do_not_count(content_type: str, expected: str) -> None:
    assert media_type(content_type) == expected


@pytest.mark.parametrize(
    "content_type", ["application/json", "Application/JSON", "application/json; charset=utf-8"]
)
def test_json_mode_follows_the_media_type(content_type: str) -> None:
    assert is_json(content_type)


@pytest.mark.parametrize(
    "content_type",
    [
        "application/ndjson",
        "application/jsonl",
        "application/problem+json",
        "text/json",
        "text/plain; a=application/json",
    ],
)
def test_json_mode_is_for_application_json_alone(content_type: str) -> None:
    assert not is_json(content_type)


@pytest.mark.parametrize("content_type", ["text/plain", "TEXT/html; charset=x", "text/event-stream"])
def test_every_text_type_is_text(content_type: str) -> None:
    assert is_text(content_type)


@pytest.mark.parametrize("content_type", ["application/json", "application/octet-stream", "textual/plain"])
def test_nothing_else_is_text(content_type: str) -> None:
    assert not is_text(content_type)


@pytest.mark.parametrize(
    "content_type",
    [
        "a/b",
        "text/plain",
        "text/plain;charset=utf-8",
        "text/plain ; charset=utf-8",
        'multipart/mixed; boundary="a b"',
        "application/vnd.api+json",
        "x-a!#$&^_.+-/y-b",
        "text/plain; name=\xe9",
    ],
)
def test_a_content_type_is_kept_as_it_was_sent(content_type: str) -> None:
    assert check_content_type(content_type) == content_type


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text",
        "text/",
        "/plain",
        "te xt/plain",
        "text/pl ain",
        "text/plain\r\nX: y",
        "a/b\n",
        "a/b/c",
        "a/b;\0",
    ],
)
def test_what_is_no_content_type_is_refused(content_type: str) -> None:
    assert isinstance(check_content_type(content_type), Malformed)


def test_a_content_type_has_a_bounded_length() -> None:
    assert isinstance(check_content_type("text/plain; a=" + "x" * 300), Malformed)
