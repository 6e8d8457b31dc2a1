"""The bucket feed: every message of a bucket in commit order, as Arrow."""

import io
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.extensions.api import BYTES, JSON, TEXT, Api, Bucket, parse_page, token


def test_every_column_of_every_message(bucket: Bucket) -> None:
    begun = datetime.now(UTC)
    bucket.create("json", b'[1,{"a":2}]', JSON)
    bucket.create("text", b"one", TEXT)
    bucket.append("text", b"two")
    bucket.append("json", b"3", JSON)
    page = bucket.feed()
    ended = datetime.now(UTC)
    times = [row.pop("timestamp") for row in page.rows]
    assert begun <= times[0] <= times[-1] <= ended
    assert times == sorted(times)

    def row(position: int, stream: str, offset: int, content_type: str, payload: bytes) -> dict[str, Any]:
        return {
            "position": position,
            "stream": stream,
            "offset": offset,
            "next_offset": offset + len(payload),
            "content_type": content_type,
            "closed": False,
            "payload": payload,
        }

    assert page.rows == [
        row(1, "json", 0, JSON, b"1"),
        row(2, "json", 1, JSON, b'{"a":2}'),
        row(3, "text", 0, TEXT, b"one"),
        row(4, "text", 3, TEXT, b"two"),
        row(5, "json", 8, JSON, b"3"),
    ]
    assert (page.next_position, page.head_position) == (5, 5)


def test_the_schema_is_the_same_whatever_is_in_it(bucket: Bucket) -> None:
    expected = pa.schema(
        [
            pa.field("position", pa.int64(), nullable=False),
            pa.field("stream", pa.string(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("next_offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("content_type", pa.string(), nullable=False),
            pa.field("closed", pa.bool_(), nullable=False),
            pa.field("payload", pa.binary()),
        ]
    )
    for _ in range(2):
        body = bucket.api.ask("GET", bucket.feed_path()).body
        assert pa.ipc.open_stream(io.BytesIO(body)).schema == expected
        bucket.try_create("s", b"data")


def test_an_offset_of_the_feed_is_an_offset_of_the_stream(bucket: Bucket) -> None:
    bucket.create("s", b'[11,"two",{"three":3}]', JSON)
    for row in bucket.feed().rows:
        answer = bucket.get("s", offset=token(row["offset"]))
        assert answer.body.startswith(b"[" + row["payload"])
    assert token(row["next_offset"]) == bucket.head("s").next_offset


def test_a_close_is_a_row(bucket: Bucket) -> None:
    """A close with data marks its last message; one without is a row of its own with a null payload."""
    bucket.create("bare", b"data")
    bucket.close("bare")
    bucket.create("full", b"[1,2]", JSON)
    bucket.append("full", b"[3,4]", JSON, stream_closed="true")
    bucket.create("born-closed", b"x", TEXT, stream_closed="true")
    bucket.create("born-empty", b"", TEXT, stream_closed="true")
    bucket.close("bare")  # again: nothing happens
    told = [
        (row["stream"], row["payload"], row["closed"], row["offset"], row["next_offset"])
        for row in bucket.feed().rows
    ]
    assert told == [
        ("bare", b"data", False, 0, 4),
        ("bare", None, True, 4, 4),
        ("full", b"1", False, 0, 1),
        ("full", b"2", False, 1, 2),
        ("full", b"3", False, 2, 3),
        ("full", b"4", True, 3, 4),
        ("born-closed", b"x", True, 0, 1),
        ("born-empty", None, True, 0, 0),
    ]
    assert bucket.feed().positions == list(range(1, 9))


def test_after_and_until_cut_the_feed(bucket: Bucket) -> None:
    bucket.create("s", b"[0,1,2,3,4]", JSON)
    for number in range(5, 10):
        bucket.append("s", b"%d" % number, JSON)
    assert bucket.feed().positions == list(range(1, 11))
    assert bucket.feed(after=0).positions == list(range(1, 11))
    assert bucket.feed(after=3).positions == list(range(4, 11))
    assert bucket.feed(after=3).payloads == [b"%d" % number for number in range(3, 10)]
    page = bucket.feed(after=3, until=7)
    assert (page.positions, page.next_position, page.head_position) == ([4, 5, 6, 7], 7, 10)
    assert bucket.feed(until=2).payloads == [b"0", b"1"]
    page = bucket.feed(after=10)
    assert (page.rows, page.next_position, page.head_position) == ([], 10, 10)
    assert bucket.feed(until=99).next_position == 10
    backwards = bucket.feed(after=5, until=3)
    assert (backwards.rows, backwards.next_position) == ([], 5), "a position never goes back"


BAD_QUERIES = [
    "after=-1",
    "after=x",
    "after=",
    "after=1.5",
    "after=01",
    "after=99999999999999999999",
    "after=1&after=2",
    "until=-1",
    "until=now",
    "limit=x",
    "limit=-5",
    "live=sse",
    "live=",
    "live=true",
]


@pytest.mark.parametrize("query", BAD_QUERIES)
def test_a_malformed_query_is_400(bucket: Bucket, query: str) -> None:
    assert bucket.api.ask("GET", f"{bucket.feed_path()}?{query}").status == 400


def test_beyond_the_head_is_400(bucket: Bucket) -> None:
    """A position from another bucket, or of a store that lost its disk: better noticed than waited for."""
    bucket.create("s", b"data")
    assert bucket.api.ask("GET", bucket.feed_path(after=2)).status == 400
    assert bucket.api.ask("GET", bucket.feed_path(after=2, live="long-poll")).status == 400


@pytest.mark.parametrize("limit", [1, 100, 1000, 10_000, 10_000_000])
def test_pages_of_any_size_together_are_the_feed(bucket: Bucket, limit: int) -> None:
    payloads = [bytes([number]) * 50 for number in range(100)]
    bucket.create("s", b"", BYTES)
    bucket.create("j", b"[" + b",".join(b"%d" % number for number in range(50)) + b"]", JSON)
    for payload in payloads:
        bucket.append("s", payload, BYTES)
    pages = list(bucket.pages(limit=limit))
    rows = [row for page in pages for row in page.rows]
    assert [row["position"] for row in rows] == list(range(1, 151))
    assert [row["payload"] for row in rows if row["stream"] == "s"] == payloads
    assert all(page.rows for page in pages), "a page moves on"
    assert all(page.next_position == page.positions[-1] for page in pages)
    if limit <= 1000:
        assert len(pages) > 1
        assert all(sum(len(row["payload"]) for row in page.rows) <= max(limit, 50) for page in pages)


def test_filters_select_streams(bucket: Bucket) -> None:
    for name in ("user-1", "user-10", "user-2", "usér", "other", "100%&="):
        bucket.create(name, b"[1,2]", JSON)

    def streams(**query: Any) -> list[str]:
        return [row["stream"] for row in bucket.feed(**query).rows]

    assert streams(stream="user-1") == ["user-1"] * 2
    assert streams(prefix="user-1") == ["user-1"] * 2 + ["user-10"] * 2
    assert streams(prefix="us") == [
        name for name in ("user-1", "user-10", "user-2", "usér") for _ in range(2)
    ]
    assert streams(prefix="usé") == streams(stream="usér") == ["usér"] * 2
    assert streams(stream="100%&=") == ["100%&="] * 2
    assert streams(stream="user-1", prefix="user-1") == ["user-1"] * 2
    assert streams(stream="user-1", prefix="other") == []
    assert streams(stream="none") == []
    assert streams(prefix="") == streams()
    page = bucket.feed(stream="none")
    assert page.next_position == page.head_position == 12, "what was looked at need not be looked at again"
    pages = list(bucket.pages(prefix="user-1", limit=1))
    assert [row["stream"] for page in pages for row in page.rows] == ["user-1"] * 2 + ["user-10"] * 2


def test_large_payloads_come_whole_and_in_order(bucket: Bucket) -> None:
    """From 16 KiB on a payload is stored once, in its stream, and the feed points at it."""
    sizes = [16 * 1024 - 1, 16 * 1024, 1, 100_000, 3_000_000, 17_000, 5]
    payloads = [bytes([65 + index]) * size for index, size in enumerate(sizes)]
    bucket.create("a", b"", BYTES)
    bucket.create("b", b"", BYTES)
    bucket.create("j", b'["%b","small","%b"]' % (b"x" * 20_000, b"y" * 20_000), JSON)
    for index, payload in enumerate(payloads):
        bucket.append("ab"[index % 2], payload, BYTES)
    rows = [row for page in bucket.pages(limit=1_000_000) for row in page.rows]
    assert [len(row["payload"]) for row in rows[:3]] == [20_002, 7, 20_002]
    assert [row["payload"] for row in rows[3:]] == payloads
    assert [row["position"] for row in rows] == list(range(1, 11))
    assert bucket.feed(stream="b", until=5).payloads == [payloads[1]]
    assert bucket.feed(after=1, until=3).payloads == [b'"small"', b'"' + b"y" * 20_000 + b'"']


def test_deleted_streams_leave_holes(bucket: Bucket) -> None:
    """The rows of a deleted stream are skipped; the hole in the positions tells that they were there."""
    for name in ("a", "b", "c"):
        bucket.create(name, b"[1,2]", JSON)
    bucket.append("a", b"3", JSON)
    bucket.delete("b")
    page = bucket.feed()
    assert [(row["position"], row["stream"]) for row in page.rows] == [
        (1, "a"),
        (2, "a"),
        (5, "c"),
        (6, "c"),
        (7, "a"),
    ]
    assert (page.next_position, page.head_position) == (7, 7)
    assert page.next_position - 0 - len(page.rows) == 2, "so many are missing"
    bucket.create("b", b"[9]", JSON)
    assert [(row["position"], row["stream"], row["offset"]) for row in bucket.feed(after=7).rows] == [
        (8, "b", 0)
    ]
    bucket.delete("a")
    bucket.delete("c")
    bucket.delete("b")
    page = bucket.feed()
    assert (page.rows, page.next_position, page.head_position) == ([], 8, 8)


def test_trimmed_messages_leave_holes(bucket: Bucket) -> None:
    bucket.create("s", b"[1,22,333]", JSON)
    bucket.create("large", b"x" * 20_000, BYTES)
    bucket.append("large", b"y" * 20_000, BYTES)
    bucket.append("s", b"4444", JSON)
    bucket.publish("s", token(3))
    bucket.publish("large", token(20_000))
    page = bucket.feed()
    assert [(row["position"], row["offset"]) for row in page.rows] == [(3, 3), (5, 20_000), (6, 6)]
    assert page.rows[1]["payload"] == b"y" * 20_000
    bucket.close("s")
    bucket.publish("s", token(10))
    rows = bucket.feed(stream="s").rows
    assert [(row["position"], row["payload"], row["closed"]) for row in rows] == [(7, None, True)]


def test_a_soft_deleted_stream_is_gone_from_the_feed_and_its_fork_is_not(bucket: Bucket) -> None:
    bucket.create("s", b"shared")
    bucket.fork("s", "f", b"own")
    bucket.delete("s")
    assert [
        (row["position"], row["stream"], row["offset"], row["payload"]) for row in bucket.feed().rows
    ] == [(2, "f", 6, b"own")]


def test_head_gives_the_present_range(bucket: Bucket) -> None:
    def positions() -> tuple[str, ...]:
        answer = bucket.api.ask("HEAD", bucket.feed_path())
        assert (answer.status, answer.body) == (200, b"")
        return tuple(answer.headers[f"feed-{name}-position"] for name in ("earliest", "next", "head"))

    assert positions() == ("1", "0", "0")
    bucket.create("s", b"[1,2,3]", JSON)
    assert positions() == ("1", "3", "3")
    bucket.append("s", b"4", JSON)
    assert positions() == ("1", "4", "4")


def test_feeds_are_not_cached_and_say_where_they_are(bucket: Bucket) -> None:
    answer = bucket.api.ask("GET", bucket.feed_path())
    assert answer.headers["cache-control"] == "no-store"
    exposed = answer.headers["access-control-expose-headers"]
    assert {"Feed-Next-Position", "Feed-Head-Position"} <= {name.strip() for name in exposed.split(",")}


def test_a_long_poll_wakes_with_the_next_commit(bucket: Bucket) -> None:
    bucket.create("s", b"one")
    with bucket.api.open("GET", bucket.feed_path(after=1, live="long-poll")) as wire:
        bucket.append("s", b"two")
        page = parse_page(wire.answer())
    assert (page.payloads, page.next_position) == ([b"two"], 2)


def test_a_long_poll_with_something_to_say_does_not_wait(bucket: Bucket) -> None:
    bucket.create("s", b"one")
    assert bucket.feed(after=0, live="long-poll").payloads == [b"one"]


def test_a_long_poll_that_nothing_happens_to_ends_with_an_empty_page(bucket: Bucket) -> None:
    bucket.create("s", b"one")
    page = bucket.feed(after=1, live="long-poll")
    assert (page.rows, page.next_position, page.head_position) == ([], 1, 1)
    assert bucket.api.new_bucket().feed(live="long-poll").next_position == 0


def test_other_buckets_do_not_wake_anyone(api: Api, bucket: Bucket) -> None:
    other = api.new_bucket()
    other.create("s")
    with bucket.api.open("GET", bucket.feed_path(live="long-poll")) as wire:
        other.append("s", b"not yours")
        assert wire.is_quiet(0.1)
        bucket.create("s", b"yours")
        assert b"yours" in wire.answer().body


def test_the_default_bucket_has_a_feed_too(api: Api) -> None:
    head = int(api.ask("HEAD", "/v1/feed/default").headers["feed-head-position"])
    assert api.ask("PUT", "/v1/stream/a/b/c", {"Content-Type": TEXT}, b"deep").status == 201
    rows = Bucket(api, "default").feed(after=head).rows
    assert [(row["stream"], row["payload"]) for row in rows] == [("a/b/c", b"deep")]


def test_a_reader_that_leaves_in_the_middle_disturbs_nobody(bucket: Bucket) -> None:
    bucket.create("s", b"x" * 5_000_000, BYTES)
    for _ in range(3):
        with bucket.api.open("GET", bucket.feed_path()) as wire:
            wire.head()
        with bucket.api.open("GET", bucket.feed_path(after=1, live="long-poll")):
            pass
    assert len(bucket.feed().rows) == 1
