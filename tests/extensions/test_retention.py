"""What a snapshot does to the data before it (extensions, 2.2 and 3.4): gone for readers, kept for forks."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perennial.store.keys import stream_key
from perennial.store.rocks import RocksStore
from tests.extensions.api import BYTES, JSON, ZERO, Api, Bucket, token
from tests.harness.server import ServerProcess

TRIMMED = [
    {},
    {"offset": "-1"},
    {"offset": ZERO},
    {"offset": token(3)},
    {"offset": token(5)},
    {"offset": "0000000000000000_0000000000000003"},
    {"offset": "-1", "live": "long-poll"},
    {"offset": ZERO, "live": "long-poll"},
    {"offset": token(3), "live": "long-poll"},
    {"offset": "-1", "live": "sse"},
    {"offset": token(3), "live": "sse"},
]


@pytest.mark.parametrize("query", TRIMMED, ids=str)
def test_every_read_mode_answers_410_below_the_snapshot(bucket: Bucket, query: dict[str, str]) -> None:
    """2.2: "For any offset less than snapshot_offset (including -1), the server MUST return 410 Gone, forcing
    clients to re-initialize via /bootstrap." """
    bucket.create("s", b"one")
    bucket.append("s", b"two")
    bucket.append("s", b"three")
    bucket.publish("s", token(6))
    answer = bucket.get("s", **query)
    assert answer.status == 410
    assert answer.error["code"] == "OFFSET_TRIMMED"


@pytest.mark.parametrize("query", TRIMMED, ids=str)
def test_json_streams_are_no_different(bucket: Bucket, query: dict[str, str]) -> None:
    """2.2: "For any offset less than snapshot_offset (including -1), the server MUST return 410 Gone" """
    bucket.create("s", b"[111,222,333]", JSON)
    bucket.publish("s", token(6))
    assert bucket.get("s", **query).status == 410


def test_above_the_snapshot_nothing_changes(bucket: Bucket) -> None:
    """2.2: "the server MUST treat snapshot_offset as the new earliest retained offset." """
    bucket.create("s", b"one")
    bucket.append("s", b"two")
    bucket.append("s", b"three")
    bucket.publish("s", token(6))
    assert bucket.get("s", offset=token(6)).body == b"three"
    assert bucket.get("s", offset=token(8)).body == b"ree"
    assert bucket.get("s", offset="now").status == 200
    assert bucket.get("s", offset="now", live="long-poll").status == 204
    assert bucket.get("s", offset=token(6), live="long-poll").body == b"three"
    assert bucket.head("s").status == 200
    assert bucket.append("s", b"four") == token(15)


def test_ordinary_reads_never_return_snapshot_bytes(bucket: Bucket) -> None:
    """3.4: "Regular GET {stream_url}?offset=... MUST NOT return snapshot bytes." """
    bucket.create("s", b"one")
    bucket.publish("s", token(3), b"SNAPSHOT")
    bucket.append("s", b"two")
    assert bucket.get("s", offset=token(3)).body == b"two"
    assert bucket.get("s", offset="now").body == b""
    assert bucket.get("s", offset=token(3), live="long-poll").body == b"two"
    bucket.close("s")
    with bucket.api.open("GET", bucket.path("s", query={"offset": token(3), "live": "sse"})) as wire:
        wire.head()
        assert [event.data for event in wire.events() if event.kind == "data"] == ["two"]


def test_after_410_there_is_a_bootstrap_that_covers_it(bucket: Bucket) -> None:
    """3.4: "If a server has begun returning 410 Gone for a stream …, the server MUST ensure /bootstrap is
    available and can provide a snapshot covering that earliest retained offset." """
    bucket.create("s", b"one")
    bucket.append("s", b"two")
    for position in (3, 6):
        bucket.publish("s", token(position), b"state %d" % position)
        assert bucket.get("s", offset="-1").status == 410
        boot = bucket.bootstrap("s")
        assert boot.answer.headers["stream-snapshot-offset"] == token(position)
        assert boot.snapshot.body == b"state %d" % position
        assert bucket.delete_snapshot("s", token(position)).status == 409


def test_live_readers_above_the_snapshot_are_not_disturbed(bucket: Bucket) -> None:
    """2.2: a reader at the tail has everything that the snapshot folds."""
    bucket.create("s", b"one")
    with (
        bucket.api.open("GET", bucket.path("s", query={"offset": token(3), "live": "sse"})) as sse,
        bucket.api.open("GET", bucket.path("s", query={"offset": token(3), "live": "long-poll"})) as poll,
    ):
        sse.head()
        events = sse.events()
        assert next(events).kind == "control"
        bucket.publish("s", token(3))
        bucket.append("s", b"two")
        assert next(events).data == "two"
        assert poll.answer().body == b"two"


# Forks (protocol notes: forks and snapshots)


def test_a_fork_keeps_what_its_source_trims(bucket: Bucket) -> None:
    """2.2: retention is the stream's own: a fork made before still has its history."""
    bucket.create("s", b"one")
    bucket.append("s", b"two")
    bucket.fork("s", "f", b"+f")
    bucket.publish("s", token(6))
    assert bucket.get("s", offset="-1").status == 410
    assert bucket.get("f", offset="-1").body == b"onetwo+f"
    assert bucket.bootstrap("f").messages == [b"one", b"two", b"+f"]
    assert "stream-snapshot-offset" not in bucket.head("f").headers


def test_a_fork_of_a_truncated_source_takes_over_its_snapshot(bucket: Bucket) -> None:
    """3.4: "can provide a snapshot covering that earliest retained offset": the fork's, too."""
    bucket.create("s", b"one")
    bucket.append("s", b"two")
    bucket.append("s", b"three")
    bucket.publish("s", token(6), b"state", JSON)
    bucket.fork("s", "f", b"+f")
    assert bucket.head("f").headers["stream-snapshot-offset"] == token(6)
    assert bucket.get("f", offset="-1").status == 410
    assert bucket.get("f", offset=token(6)).body == b"three+f"
    assert bucket.bootstrap("f").parts == [(JSON, b"state"), ("text/plain", b"three"), ("text/plain", b"+f")]
    assert bucket.get_snapshot("f", token(6)).body == b"state"
    bucket.fork("f", "g")
    # Whatever becomes of its source, the fork has what it was given.
    bucket.publish("s", token(11), b"later")
    bucket.publish("s", token(11), b"later still")
    assert bucket.get_snapshot("f", token(6)).body == b"state"
    bucket.delete("s")
    assert bucket.bootstrap("f").snapshot.body == b"state"
    bucket.delete("f")
    assert bucket.bootstrap("g").parts == [(JSON, b"state"), ("text/plain", b"three"), ("text/plain", b"+f")]


def test_a_fork_below_the_retained_range_is_410(bucket: Bucket) -> None:
    """2.2: "For any offset less than snapshot_offset … 410 Gone" """
    bucket.create("s", b"one")
    bucket.append("s", b"two")
    bucket.publish("s", token(6))
    for position in (0, 3, 5):
        assert bucket.try_fork("s", "f", stream_fork_offset=token(position)).status == 410
    assert bucket.try_fork("s", "f", stream_fork_offset=token(6)).status == 201


def test_a_fork_publishes_snapshots_of_its_own(bucket: Bucket) -> None:
    """2.2: at any boundary of what it inherits or has appended, and never for its source."""
    bucket.create("s", b"one")
    bucket.append("s", b"two")
    bucket.fork("s", "f", b"+f")
    bucket.publish("f", token(3), b"inherited")
    assert bucket.bootstrap("f").parts[0].body == b"inherited"
    assert bucket.bootstrap("f").messages == [b"two", b"+f"]
    assert bucket.try_publish("f", token(7)).status == 400
    bucket.publish("f", token(8), b"own")
    assert bucket.get("f", offset=token(3)).status == 410
    assert bucket.get("s", offset="-1").body == b"onetwo"
    assert bucket.latest_snapshot("s").status == 404


def test_a_fork_that_cuts_a_message_has_a_boundary_there(bucket: Bucket) -> None:
    """2.1: one boundary model, where a fork ends its inheritance inside a message, too."""
    bucket.create("s", b"abcdef")
    bucket.fork("s", "f", stream_fork_offset=ZERO, stream_fork_sub_offset="4")
    bucket.append("f", b"XY")
    assert bucket.bootstrap("f").messages == [b"abcd", b"XY"]
    assert bucket.try_publish("f", token(3)).status == 400
    assert bucket.try_publish("s", token(4)).status == 400
    bucket.publish("f", token(4), b"cut")
    assert bucket.bootstrap("f").messages == [b"XY"]


# Space, looked at in the store itself

MESSAGES = 40
SIZE = 20_000


@contextmanager
def stopped_store(server: ServerProcess) -> Iterator[RocksStore]:
    """The store of a server that was stopped, after all its garbage has been collected."""
    server.stop()
    store = RocksStore(Path(server.data))
    try:
        while store.collect_garbage(lambda number: False):
            pass
        yield store
    finally:
        store.close()


def block_starts(store: RocksStore, bucket: Bucket, stream: str) -> list[int]:
    row = store.stream(stream_key(bucket.id, stream))
    assert row is not None
    return [block.start for block in store.blocks(row.state.id, 0, 1 << 62)]


def rows_of(store: RocksStore, family: str) -> int:
    return sum(1 for _ in store._scan(family, b"", None))


def fill(bucket: Bucket, stream: str) -> list[str]:
    bucket.create(stream, b"", BYTES)
    return [bucket.append(stream, bytes([number]) * SIZE, BYTES) for number in range(MESSAGES)]


def test_trimmed_blocks_and_superseded_snapshots_leave_the_store(own_server: ServerProcess) -> None:
    """2.2: "The superseded snapshot MAY be garbage-collected asynchronously". The space comes back."""
    bucket = Api(own_server.port).new_bucket()
    offsets = fill(bucket, "s")
    offsets_of_all = fill(bucket, "all")
    for index in (5, 20, 29):
        bucket.publish("s", offsets[index], b"x" * 3_000_000)
    bucket.publish("all", offsets_of_all[-1], b"everything")
    with stopped_store(own_server) as store:
        kept = block_starts(store, bucket, "s")
        assert kept == [SIZE * number for number in range(30, MESSAGES)]
        assert block_starts(store, bucket, "all") == []
        assert rows_of(store, "blobs") == 3 + 1  # pieces of a mebibyte: one snapshot of each stream
        assert rows_of(store, "garbage") == rows_of(store, "uploads") == 0


def test_blocks_that_a_fork_needs_stay_until_it_is_gone(own_server: ServerProcess) -> None:
    """2.2: what a fork still needs is kept, and goes with the fork."""
    bucket = Api(own_server.port).new_bucket()
    offsets = fill(bucket, "s")
    bucket.publish("s", offsets[4], b"first")
    bucket.fork("s", "f", stream_fork_offset=offsets[19])
    bucket.publish("s", offsets[29], b"second")
    with stopped_store(own_server) as store:
        assert block_starts(store, bucket, "s") == [SIZE * number for number in range(5, MESSAGES)]
        assert rows_of(store, "blobs") == 2
    own_server.start()
    assert bucket.get("f", offset=offsets[4]).body == b"".join(bytes([n]) * SIZE for n in range(5, 20))
    assert bucket.bootstrap("f").snapshot.body == b"first"
    bucket.delete("f")
    with stopped_store(own_server) as store:
        assert block_starts(store, bucket, "s") == [SIZE * number for number in range(30, MESSAGES)]
        assert rows_of(store, "blobs") == 1
    own_server.start()
    assert bucket.bootstrap("s").snapshot.body == b"second"
    bucket.delete("s")
    with stopped_store(own_server) as store:
        assert rows_of(store, "blocks") == rows_of(store, "blobs") == 0
    own_server.start()
