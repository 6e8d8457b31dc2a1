"""Listing a bucket (extensions, 1.4)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.extensions.api import JSON, TEXT, Bucket
from tests.harness.wire import Wire, encode_request


def ids(page: dict[str, Any]) -> list[str]:
    return [listed["stream_id"] for listed in page["streams"]]


def walk(bucket: Bucket, **query: Any) -> list[dict[str, Any]]:
    """All pages, as a client that follows cursors sees them."""
    pages = [bucket.list(**query)]
    while pages[-1]["has_more"]:
        pages.append(bucket.list(**query | {"after": pages[-1]["next_cursor"]}))
    return pages


def test_a_page_says_what_the_specification_shows(bucket: Bucket) -> None:
    """1.4: "The response body is: …" Count and cursor are of this page; at the end the cursor is null."""
    begun = int(datetime.now(UTC).timestamp() * 1000) - 1
    bucket.create("user-1", b"x" * 40, TEXT)
    bucket.append("user-1", b"yz")
    bucket.create("user-2", b"[1]", JSON)
    bucket.close("user-2")
    page = bucket.list(prefix="user-", limit=1)
    (listed,) = page.pop("streams")
    assert page == {
        "bucket_id": bucket.id,
        "prefix": "user-",
        "stream_count": 1,
        "next_cursor": "user-1",
        "has_more": True,
    }
    created, written = listed.pop("created_at_ms"), listed.pop("last_write_at_ms")
    assert listed == {
        "stream_id": "user-1",
        "status": "Open",
        "content_type": "text/plain",
        "tail_offset": 42,
    }
    assert begun <= created <= written
    last = bucket.list(prefix="user-", after="user-1")
    assert (last["has_more"], last["next_cursor"], last["stream_count"]) == (False, None, 1)
    assert (last["streams"][0]["status"], last["streams"][0]["content_type"]) == ("Closed", JSON)


def test_streams_come_in_the_order_of_their_ids(bucket: Bucket) -> None:
    """1.4: "streams is sorted lexicographically by stream_id." """
    names = ["b", "a", "a.", "a-1", "a-10", "a-2", "B", "~", "ä", "Z", "日本", "🌊", "a b", "�", "é"]
    for name in names:
        bucket.create(name)
    assert ids(bucket.list()) == sorted(names)
    assert ids(bucket.list()) == sorted(names, key=lambda name: name.encode())


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 1000])
def test_pages_of_any_size_together_are_the_listing(bucket: Bucket, limit: int) -> None:
    """1.4: "after is an exclusive cursor over bucket-local stream IDs." """
    names = [f"s-{number}" for number in range(7)]
    for name in names:
        bucket.create(name)
    pages = walk(bucket, limit=limit)
    assert [name for page in pages for name in ids(page)] == names
    assert all(page["stream_count"] == len(page["streams"]) <= limit for page in pages)
    assert all(page["next_cursor"] == ids(page)[-1] for page in pages[:-1])
    assert pages[-1]["next_cursor"] is None
    assert len(pages) == -(-7 // limit)


def test_a_prefix_selects(bucket: Bucket) -> None:
    """1.4: "prefix filters bucket-local stream IDs by prefix. When omitted, all bucket-local stream IDs are
    eligible." """
    for name in ("user", "user-1", "user-2", "user-\U0010ffff", "usez", "us", "ä1", "ä2", "a"):
        bucket.create(name)
    assert ids(bucket.list(prefix="user-")) == ["user-1", "user-2", "user-\U0010ffff"]
    assert ids(bucket.list(prefix="ä")) == ["ä1", "ä2"]
    assert ids(bucket.list(prefix="user-\U0010ffff")) == ["user-\U0010ffff"]
    assert ids(bucket.list(prefix="none")) == []
    assert ids(bucket.list(prefix="")) == ids(bucket.list())
    assert bucket.list(prefix="none")["prefix"] == "none"
    pages = walk(bucket, prefix="user", limit=2)
    assert [name for page in pages for name in ids(page)] == ["user", "user-1", "user-2", "user-\U0010ffff"]


def test_a_cursor_need_not_name_a_stream(bucket: Bucket) -> None:
    """1.4: "after is an exclusive cursor": a stream deleted between two pages does not disturb the walk."""
    for name in ("a", "c", "e", "p-1", "p-2"):
        bucket.create(name)
    assert ids(bucket.list(after="b")) == ["c", "e", "p-1", "p-2"]
    assert ids(bucket.list(after="c")) == ["e", "p-1", "p-2"]
    assert ids(bucket.list(after="zzz")) == []
    assert ids(bucket.list(prefix="p", after="a")) == ["p-1", "p-2"]
    assert ids(bucket.list(prefix="a", after="p")) == []
    first = bucket.list(limit=2)
    bucket.delete("c")
    assert ids(bucket.list(after=first["next_cursor"])) == ["e", "p-1", "p-2"]


@pytest.mark.parametrize(
    "limit", ["0", "1001", "-1", "", "1.5", "+5", "1e2", "ten", "²", "00005", " 5", "99999999"]
)
def test_a_limit_outside_1_to_1000_is_refused(bucket: Bucket, limit: str) -> None:
    """1.4: "limit defaults to 1000 and must be in 1..=1000." "400 Bad Request: … query parameters are
    invalid." """
    assert bucket.api.ask("GET", bucket.path("streams", query={"limit": limit})).status == 400


@pytest.mark.parametrize("query", ["limit=1&limit=2", "after=a&after=b", "prefix=a&prefix=a"])
def test_a_parameter_given_twice_is_refused(bucket: Bucket, query: str) -> None:
    """1.4: "400 Bad Request: bucket_id or query parameters are invalid." """
    assert bucket.api.ask("GET", f"{bucket.path('streams')}?{query}").status == 400


def test_a_page_has_at_most_a_thousand_streams(bucket: Bucket) -> None:
    """1.4: "limit defaults to 1000" """
    names = [f"s{number:04d}" for number in range(1001)]
    with Wire(bucket.api.port) as wire:
        for start in range(0, len(names), 100):
            batch = names[start : start + 100]
            wire.send(b"".join(encode_request("PUT", bucket.path(name)) for name in batch))
            assert {wire.answer().status for _ in batch} == {201}
    page = bucket.list()
    assert (page["stream_count"], page["has_more"], page["next_cursor"]) == (1000, True, "s0999")
    assert ids(bucket.list(limit=1000)) == names[:1000]
    assert ids(bucket.list(after="s0999")) == ["s1000"]
    assert bucket.describe()["streams"] == 1001


def test_deleted_streams_are_not_listed_even_while_forks_need_them(bucket: Bucket) -> None:
    """1.4: "Matching streams returned." What answers 410 to everyone is not a match."""
    bucket.create("gone")
    bucket.create("source", b"data")
    bucket.fork("source", "fork")
    bucket.delete("gone")
    bucket.delete("source")
    assert bucket.get("source").status == 410
    assert ids(bucket.list()) == ["fork"]
    assert bucket.describe()["streams"] == 1
    bucket.delete("fork")
    assert ids(bucket.list()) == []


def test_expired_streams_are_not_listed(bucket: Bucket) -> None:
    """1.4: "Matching streams returned." A listing does not wait for the sweeper to notice."""
    past = (datetime.now(UTC) - timedelta(seconds=5)).isoformat().replace("+00:00", "Z")
    future = (datetime.now(UTC) + timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    bucket.create("idle", stream_ttl="0")
    bucket.create("over", stream_expires_at=past)
    bucket.create("later", stream_expires_at=future)
    bucket.create("alive", stream_ttl="3600")
    assert ids(bucket.list()) == ["alive", "later"]


def test_a_listing_shows_forks_with_their_own_tail(bucket: Bucket) -> None:
    """1.4: `tail_offset` is the plain integer."""
    bucket.create("s", b"12345")
    bucket.fork("s", "f", b"678", stream_fork_offset="0000000000000000", stream_fork_sub_offset="2")
    assert [(listed["stream_id"], listed["tail_offset"]) for listed in bucket.list()["streams"]] == [
        ("f", 5),
        ("s", 5),
    ]


def test_a_fork_says_how_much_it_inherited(bucket: Bucket) -> None:
    """What no feed row of its own tells of; other streams do not mention it."""
    bucket.create("source", b"inherited", TEXT)
    bucket.fork("source", "fork")
    bucket.append("fork", b" and more")
    fork, source = bucket.list()["streams"]
    assert (fork["inherited_bytes"], fork["tail_offset"]) == (9, 18)
    assert "inherited_bytes" not in source
