"""Buckets and their listing through the client, blocking and not."""

from typing import Any

import pytest

from perennial.client import (
    AsyncClient,
    AsyncProxyClient,
    BucketInfo,
    Client,
    Disconnected,
    ProxyClient,
    Refused,
)
from tests.client.both import bucket, client, extensions_host, kind, new_client
from tests.extensions.api import JSON, Bucket

__all__ = ["bucket", "client", "extensions_host", "kind"]


def test_the_life_of_a_bucket(client: Any, kind: str) -> None:
    name = f"life-{kind}"
    client.create_bucket(name)
    assert client.bucket(name) == BucketInfo(name, 0)
    client.delete_bucket(name)
    with pytest.raises(Refused) as caught:
        client.bucket(name)
    assert (caught.value.status, caught.value.code) == (404, "BUCKET_NOT_FOUND")
    assert "no such bucket" in caught.value.reason


def test_refusals_carry_their_status_and_reason(client: Any, bucket: Bucket) -> None:
    bucket.create("s")
    for method, argument, status in (
        ("create_bucket", bucket.id, 409),
        ("create_bucket", "NO", 400),
        ("delete_bucket", bucket.id, 409),
        ("delete_bucket", "never-made", 404),
    ):
        with pytest.raises(Refused) as caught:
            getattr(client, method)(argument)
        assert caught.value.status == status
        assert caught.value.reason


def test_a_listing_goes_through_all_its_pages(client: Any, bucket: Bucket) -> None:
    names = sorted(["a", "b", "user-1", "user-2", "user-3", "ünïcode", "with space & more=100%"])
    for name in names:
        bucket.create(name, b"[1]", JSON)
    bucket.close("b")
    assert [stream.stream_id for stream in client.streams(bucket.id)] == names
    assert [stream.stream_id for stream in client.streams(bucket.id, page_size=2)] == names
    assert [stream.stream_id for stream in client.streams(bucket.id, "user-", page_size=1)] == names[2:5]
    assert [stream.stream_id for stream in client.streams(bucket.id, after="user-2")] == names[4:]
    (listed,) = client.streams(bucket.id, "b")
    assert (listed.status, listed.content_type, listed.tail_offset) == ("Closed", JSON, 1)
    assert listed.created_at_ms <= listed.last_write_at_ms
    assert list(client.streams(bucket.id, "none")) == []


@pytest.mark.parametrize(
    "url", ["127.0.0.1:4437", "localhost", "http://", "http://host:port", "ftp://host", ""]
)
@pytest.mark.parametrize("client_type", [Client, AsyncClient, ProxyClient, AsyncProxyClient])
def test_what_is_no_url_is_said_to_be_none(client_type: Any, url: str) -> None:
    with pytest.raises(ValueError, match="is not the URL of a server"):
        client_type(url)


def test_a_server_that_is_not_there_is_said_to_be_so(kind: str) -> None:
    with new_client(kind, "http://127.0.0.1:9") as nobody, pytest.raises(Disconnected):
        nobody.create_bucket("agents")
