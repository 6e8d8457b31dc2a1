"""Which coding a client gets, and which tag belongs to it."""

import pytest

from perennial.http.compression import choose, encoded_etag, known_etag


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"),
        ("gzip, zstd", "zstd"),
        ("zstd;q=0.1, gzip;q=0.9", "gzip"),
        ("GZIP;Q=1", "gzip"),
        ("gzip;q=0", None),
        ("gzip;q=x", None),
        ("br, deflate, *", None),
        ("", None),
    ],
)
def test_the_client_chooses(accepted: str, coding: str | None) -> None:
    assert choose(accepted) == coding


def test_each_coding_has_a_tag_and_any_of_them_is_recognised() -> None:
    etag = '"stream:0:9"'
    assert encoded_etag(etag, "gzip") == '"stream:0:9:gzip"'
    assert known_etag('W/"stream:0:9:gzip"', etag) == '"stream:0:9:gzip"'
    assert known_etag(etag, etag) == etag
    assert known_etag("*", etag) == etag
    assert known_etag('"stream:0:8"', etag) is None
    assert known_etag(None, etag) is None
