"""Snapshots on their way in and out: limits, pace, memory, and uploads that never end (extensions, 2.2)."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from perennial.store.rocks import RocksStore
from tests.extensions.api import BYTES, Api, Bucket, token
from tests.harness.server import ServerProcess
from tests.harness.wire import Wire

MIB = 1 << 20


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Bucket]:
    """A bucket of a server that takes snapshots of 100,000 bytes at most."""
    with ServerProcess(tmp_path / "data", {"PERENNIAL_MAX_SNAPSHOT": "100000"}) as running:
        yield Api(running.port).new_bucket()


def test_a_snapshot_beyond_the_limit_is_413(limited: Bucket) -> None:
    """2.2: "413 Payload Too Large: Snapshot exceeds the server's size limit." """
    limited.create("s", b"data")
    limited.publish("s", token(4), b"x" * 100_000)
    assert limited.try_publish("s", token(4), b"y" * 100_001).status == 413
    assert limited.get_snapshot("s", token(4)).body == b"x" * 100_000
    # Without a length said beforehand, it is noticed when too much has come.
    with Wire(limited.api.port) as wire:
        wire.send(begin_publish(limited, "s", token(4), None))
        for _ in range(3):
            wire.send(chunk(b"z" * 40_000))
        wire.send(chunk(b""))
        assert wire.answer().status == 413
    assert limited.get_snapshot("s", token(4)).body == b"x" * 100_000
    # Appends have a limit of their own.
    assert limited.try_append("s", b"a" * 100_001).status == 204


def test_appends_go_on_while_a_snapshot_comes_in(bucket: Bucket) -> None:
    """2.2: "Snapshot creation MUST NOT block concurrent appends. The snapshot's consistency boundary is
    snapshot_offset — updates at or beyond that offset MUST NOT be folded into the snapshot." """
    body = b"S" * (3 * MIB)
    bucket.create("s", b"one")
    with Wire(bucket.api.port) as wire:
        wire.send(begin_publish(bucket, "s", token(3), len(body)) + body[: 2 * MIB])
        for number in range(20):
            bucket.append("s", b"%d" % (number % 10))
            if number == 10:
                wire.send(body[2 * MIB : -1])
        assert bucket.get("s", offset="-1").body == b"one01234567890123456789"
        assert bucket.latest_snapshot("s").status == 404  # nothing of it is visible before it is whole
        wire.send(body[-1:])
        assert wire.answer().status == 204
    boot = bucket.bootstrap("s")
    assert boot.snapshot.body == body
    assert b"".join(boot.messages) == b"01234567890123456789"


def test_what_was_refused_at_first_is_not_published_later(bucket: Bucket) -> None:
    """2.2: "409 Conflict: snapshot_offset exceeds the current tail": decided when the request came. Its body
    has not been kept, so the append that would make it right comes too late."""
    bucket.create("s", b"one")
    with Wire(bucket.api.port) as wire:
        wire.send(begin_publish(bucket, "s", token(6), 8) + b"fold")
        bucket.head("s")  # the server has seen the other request by now, or sees it before the append
        bucket.get("s", offset="now", live="long-poll")
        bucket.append("s", b"two")
        wire.send(b"fold")
        status = wire.answer().status
    assert status == 409
    assert bucket.latest_snapshot("s").status == 404
    assert bucket.get("s", offset="-1").body == b"onetwo"


def test_what_became_impossible_while_it_came_in_is_refused(bucket: Bucket) -> None:
    """2.2: "410 Gone: snapshot_offset is older than the current earliest retained offset." Judged at the
    end."""
    bucket.create("s", b"one")
    bucket.append("s", b"two")
    with Wire(bucket.api.port) as wire:
        wire.send(begin_publish(bucket, "s", token(3), 4) + b"sl")
        bucket.publish("s", token(6), b"fast")
        wire.send(b"ow")
        assert wire.answer().status == 410
    assert bucket.bootstrap("s").snapshot.body == b"fast"
    with Wire(bucket.api.port) as wire:
        wire.send(begin_publish(bucket, "s", token(6), 4) + b"sl")
        bucket.delete("s")
        wire.send(b"ow")
        assert wire.answer().status == 404


def test_a_snapshot_of_a_deleted_stream_is_not_published_on_the_next_one_of_its_name(bucket: Bucket) -> None:
    """2.2: "404 Not Found: The stream does not exist." The one the snapshot was made of, that is."""
    bucket.create("s", b"one")
    with Wire(bucket.api.port) as wire:
        wire.send(begin_publish(bucket, "s", token(3), 2 * MIB) + b"x" * MIB)
        bucket.get("s", offset="now", live="long-poll")  # the server has seen the other request by now
        bucket.delete("s")
        bucket.create("s", b"two")
        wire.send(b"x" * MIB)
        assert wire.answer().status == 404
    assert bucket.latest_snapshot("s").status == 404
    assert bucket.get("s", offset="-1").body == b"two"


def test_an_upload_that_breaks_off_leaves_nothing(own_server: ServerProcess) -> None:
    """2.2: a snapshot is published whole or not at all."""
    bucket = Api(own_server.port).new_bucket()
    bucket.create("s", b"one")
    bucket.append("s", b"two")
    bucket.publish("s", token(3), b"before")
    for framing in (4 * MIB, None):
        with Wire(bucket.api.port) as wire:
            start = begin_publish(bucket, "s", token(6), framing)
            wire.send(start + (b"x" * 3 * MIB if framing else chunk(b"x" * 3 * MIB)))
    with Wire(bucket.api.port) as wire:  # refused at the end
        wire.send(begin_publish(bucket, "s", token(3), 2 * MIB) + b"x" * MIB)
        bucket.publish("s", token(6), b"after")
        wire.send(b"x" * MIB)
        assert wire.answer().status == 410
    assert bucket.bootstrap("s").parts == [(BYTES, b"after")]
    own_server.stop()
    store = RocksStore(own_server.data)
    try:
        while store.collect_garbage(lambda number: False):
            pass
        assert [len(value) for _, value in store._scan("blobs", b"", None)] == [len(b"after")]
        assert list(store._scan("uploads", b"", None)) == []
    finally:
        store.close()
    own_server.start()


def test_an_upload_cut_by_a_crash_leaves_nothing_and_takes_nothing_along(own_server: ServerProcess) -> None:
    """2.2: the pieces of an upload that a crash interrupted are removed, and never a later snapshot's."""
    bucket = Api(own_server.port).new_bucket()
    bucket.create("s", b"data")
    with Wire(bucket.api.port) as wire:
        wire.send(begin_publish(bucket, "s", token(4), 4 * MIB) + b"x" * (3 * MIB))
        bucket.get("s", offset="now", live="long-poll")  # while this waits, the pieces are written
        own_server.kill()
    own_server.start()
    assert bucket.latest_snapshot("s").status == 404
    later = [b"snapshot %d " % number * 100_000 for number in range(3)]
    for body in later:
        bucket.publish("s", token(4), body)
        bucket.get("s", offset="now", live="long-poll")  # time for the clean-up
        assert bucket.get_snapshot("s", token(4)).body == body
    own_server.stop()
    store = RocksStore(own_server.data)
    try:
        while store.collect_garbage(lambda number: False):
            pass
        assert sum(len(value) for _, value in store._scan("blobs", b"", None)) == len(later[-1])
    finally:
        store.close()
    own_server.start()


def test_large_snapshots_stream_in_and_out_in_bounded_memory(own_server: ServerProcess) -> None:
    """2.2: snapshots may be large; the server never holds one whole."""
    bucket = Api(own_server.port).new_bucket()
    bucket.create("s", b"data")
    piece = bytes(range(256)) * (MIB // 256)
    upload(bucket, [piece] * 32)
    download(bucket)  # caches are as full as they will be
    resident = memory_bytes(own_server, "VmRSS")
    pieces = 128
    upload(bucket, [piece] * pieces)
    digest, size = download(bucket)
    assert (digest, size) == (hashlib.sha256(piece * pieces).hexdigest(), pieces * MIB)
    # What RocksDB may still add to its caches, which have a fixed size, and never the snapshot.
    assert memory_bytes(own_server, "VmHWM") - resident < 0.75 * pieces * MIB


def test_a_slow_reader_of_a_large_snapshot_does_not_make_the_server_hold_it(bucket: Bucket) -> None:
    """2.5: read at the reader's pace."""
    bucket.create("s", b"data")
    bucket.publish("s", token(4), b"x" * (16 * MIB))
    with Wire(bucket.api.port, receive_buffer=16 * 1024) as wire:
        wire.ask("GET", bucket.snapshot_path("s", token(4)))
        assert wire.head()[0] == 200
        chunks = wire.chunks()
        next(chunks)
        bucket.append("s", b"more")  # others are served meanwhile
        assert bucket.get("s", offset=token(4)).body == b"more"


# Steps


def begin_publish(bucket: Bucket, stream: str, offset: str, length: int | None) -> bytes:
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    path = bucket.snapshot_path(stream, offset)
    return f"PUT {path} HTTP/1.1\r\nHost: test\r\nContent-Type: {BYTES}\r\n{framing}\r\n\r\n".encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def upload(bucket: Bucket, pieces: list[bytes]) -> None:
    with Wire(bucket.api.port) as wire:
        wire.send(begin_publish(bucket, "s", token(4), sum(map(len, pieces))))
        for piece in pieces:
            wire.send(piece)
        assert wire.answer().status == 204


def download(bucket: Bucket) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    with Wire(bucket.api.port) as wire:
        wire.ask("GET", bucket.snapshot_path("s", token(4)))
        assert wire.head()[0] == 200
        for data in wire.chunks():
            digest.update(data)
            size += len(data)
    return digest.hexdigest(), size


def memory_bytes(server: ServerProcess, what: str) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text()
    found = re.search(rf"{what}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024
