"""The bucket feed through the client: batches, tables, positions."""

import threading
from typing import Any

import pyarrow as pa
import pytest

from perennial.client import FeedRange, Refused
from tests.client.both import bucket, client, extensions_host, kind, new_client
from tests.client.cutting import cutting_proxy
from tests.extensions.api import BYTES, JSON, Api, Bucket, token
from tests.harness.server import ServerProcess

__all__ = ["bucket", "client", "extensions_host", "kind"]


def test_a_feed_is_record_batches_or_a_table(client: Any, bucket: Bucket) -> None:
    bucket.create("a", b"[1,2,3]", JSON)
    bucket.create("b", b"data")
    feed = client.feed(bucket.id)
    batches = list(feed)
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert sum(batch.num_rows for batch in batches) == 4
    assert (feed.position, feed.head, feed.missing) == (4, 4, 0)
    table = client.feed(bucket.id).read_table()
    assert table.column("payload").to_pylist() == [b"1", b"2", b"3", b"data"]
    assert table.column("position").to_pylist() == [1, 2, 3, 4]
    assert client.feed_range(bucket.id) == FeedRange(1, 4)


def test_an_empty_feed_is_an_empty_table(client: Any, bucket: Bucket) -> None:
    table = client.feed(bucket.id).read_table()
    assert (table.num_rows, table.column_names[0]) == (0, "position")
    assert client.feed_range(bucket.id) == FeedRange(1, 0)
    with pytest.raises(Refused) as caught:
        client.feed("never-made").read_table()
    assert caught.value.status == 404
    with pytest.raises(Refused) as caught:
        client.feed(bucket.id, after=5).read_table()
    assert caught.value.status == 400


def test_a_feed_is_cut_and_filtered(client: Any, bucket: Bucket) -> None:
    for name in ("user-1", "user-2", "other & more"):
        bucket.create(name, b"[1,2]", JSON)

    def streams(**query: Any) -> list[str]:
        found: list[str] = client.feed(bucket.id, **query).read_table().column("stream").to_pylist()
        return found

    assert streams(stream="other & more") == ["other & more"] * 2
    assert streams(prefix="user-") == ["user-1", "user-1", "user-2", "user-2"]
    assert streams(after=1, until=3) == ["user-1", "user-2"]
    assert streams(page_bytes=1) == ["user-1", "user-1", "user-2", "user-2", "other & more", "other & more"]


def test_a_position_belongs_to_the_last_batch_that_was_handed_out(client: Any, bucket: Bucket) -> None:
    """Whoever stops anywhere and stores the position goes on without a hole and without a repetition."""
    bucket.create("s", b"", BYTES)
    payloads = [bytes([number]) * 400_000 for number in range(12)]
    for payload in payloads:
        bucket.append("s", payload, BYTES)
    position = 0
    seen: list[bytes] = []
    while len(seen) < len(payloads):
        feed = client.feed(bucket.id, after=position)
        batch = next(iter(feed))
        seen += batch.column("payload").to_pylist()
        position = feed.position
    assert seen == payloads


def test_what_was_taken_away_is_counted(client: Any, bucket: Bucket) -> None:
    bucket.create("a", b"[1,2,3,4]", JSON)
    bucket.create("b", b"[1,2]", JSON)
    bucket.publish("a", token(3))
    feed = client.feed(bucket.id)
    assert [row["position"] for row in feed.read_table().to_pylist()] == [4, 5, 6]
    assert feed.missing == 3
    filtered = client.feed(bucket.id, stream="b")
    filtered.read_table()
    assert filtered.missing == 0, "a filter leaves out more than was taken away"


def test_a_live_feed_misses_and_repeats_nothing(
    kind: str, bucket: Bucket, extensions_host: ServerProcess
) -> None:
    messages = 60

    def write(stream: str) -> None:
        for number in range(messages):
            bucket.append(stream, b"%d;" % number, BYTES)

    for stream in ("a", "b"):
        bucket.create(stream, b"", BYTES)
    writers = [threading.Thread(target=write, args=(stream,)) for stream in ("a", "b")]
    rows: list[dict[str, Any]] = []
    with cutting_proxy(extensions_host.port) as cutter, new_client(kind, cutter.url) as client:
        cutter.cuts = [0, 300, 2000, 5000, 700]
        for writer in writers:
            writer.start()
        for batch in client.feed(bucket.id, live=True):
            rows += batch.to_pylist()
            if len(rows) >= 2 * messages:
                break
        for writer in writers:
            writer.join()
        assert cutter.broken >= 2
    assert [row["position"] for row in rows] == list(range(1, 2 * messages + 1))
    for stream in ("a", "b"):
        own = b"".join(row["payload"] for row in rows if row["stream"] == stream)
        assert own == b"".join(b"%d;" % number for number in range(messages))


def test_a_live_feed_outlives_the_server(kind: str, server: ServerProcess) -> None:
    bucket = Api(server.port).new_bucket()
    bucket.create("s", b"[1]", JSON)
    with new_client(kind, server.url) as client:
        feed = client.feed(bucket.id, live=True)
        batches = iter(feed)
        assert next(batches).column("payload").to_pylist() == [b"1"]
        server.restart()
        bucket.append("s", b"2", JSON)
        assert next(batches).column("payload").to_pylist() == [b"2"]
        assert feed.position == 2
