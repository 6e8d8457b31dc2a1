import pytest

from perennial.protocol.names import MAX_NAME_BYTES, check_bucket_id, check_stream_name, decode_path
from perennial.protocol.rejections import Malformed


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"/v1/stream/a", "/v1/stream/a"),
        (b"/v1/stream/a%20b", "/v1/stream/a b"),
        (b"/v1/stream/%C3%A9", "/v1/stream/é"),
        (b"/v1/stream/%c3%a9", "/v1/stream/é"),
        (b"/v1/stream/a%2Fb", "/v1/stream/a/b"),
        (b"/v1/stream/%2525", "/v1/stream/%25"),
        (b"/v1/stream/a+b", "/v1/stream/a+b"),
    ],
)
def test_a_path_is_decoded_once(raw: bytes, path: str) -> None:
    assert decode_path(raw) == path


@pytest.mark.parametrize("raw", [b"/%", b"/%2", b"/%zz", b"/a%G0", b"/%ff", b"/\xff", b"/%C3", b"/%ED%A0%80"])
def test_a_path_that_is_no_text_is_malformed(raw: bytes) -> None:
    assert isinstance(decode_path(raw), Malformed)


@pytest.mark.parametrize(
    "name", ["a", "a/b/c", "user-1/chat", "...", "a..b", ".hidden", "é", "a b", "snapshot", "%"]
)
def test_a_stream_name_is_one_or_more_segments(name: str) -> None:
    assert check_stream_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "/", "a/", "/a", "a//b", ".", "..", "a/..", "../a", "a/./b", "a/../../b", "a\0b"]
)
def test_a_stream_name_does_not_walk_the_tree(name: str) -> None:
    assert isinstance(check_stream_name(name), Malformed)


def test_a_slash_too_many_is_called_one() -> None:
    assert check_stream_name("") == Malformed("the name of the stream is missing")
    for name in ("a/", "/a", "a//b"):
        assert check_stream_name(name) == Malformed(
            "a stream name must not begin or end with '/', or have '//'"
        )


def test_a_stream_name_is_measured_in_bytes() -> None:
    assert check_stream_name("x" * MAX_NAME_BYTES) == "x" * MAX_NAME_BYTES
    assert isinstance(check_stream_name("x" * (MAX_NAME_BYTES + 1)), Malformed)
    assert isinstance(check_stream_name("é" * (MAX_NAME_BYTES // 2 + 1)), Malformed)


@pytest.mark.parametrize("bucket", ["abcd", "agents", "user-1_x", "0000", "a" * 64])
def test_a_bucket_id_is_4_to_64_plain_characters(bucket: str) -> None:
    assert check_bucket_id(bucket) == bucket


@pytest.mark.parametrize(
    "bucket", ["", "abc", "a" * 65, "Agents", "a.bc", "a/bc", "a bc", "äbcd", "abcd\n", "__ds"]
)
def test_any_other_bucket_id_is_refused(bucket: str) -> None:
    assert isinstance(check_bucket_id(bucket), Malformed)
