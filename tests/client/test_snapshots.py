"""Snapshots through the client, blocking and not."""

import io
import threading
from pathlib import Path
from typing import Any

import pytest

from perennial.client import Client, Refused, Snapshot
from tests.client.both import bucket, client, extensions_host, kind
from tests.extensions.api import BYTES, JSON, TEXT, Api, Bucket, token
from tests.harness.server import ServerProcess

__all__ = ["bucket", "client", "extensions_host", "kind"]


def test_snapshots_are_published_from_bytes_files_and_pieces(
    client: Any, bucket: Bucket, tmp_path: Path
) -> None:
    bucket.create("s", b"data")
    large = bytes(range(256)) * 10_000
    file = tmp_path / "fold"
    file.write_bytes(large)
    with file.open("rb") as opened:
        for content, expected in (
            (b"bytes", b"bytes"),
            (b"", b""),
            (io.BytesIO(large), large),
            (opened, large),
            ((large[at : at + 7000] for at in range(0, len(large), 7000)), large),
            (iter([]), b""),
        ):
            client.publish_snapshot(bucket.id, "s", token(4), content, JSON)
            assert client.snapshot(bucket.id, "s") == Snapshot(expected, JSON, token(4))
    client.publish_snapshot(bucket.id, "s", token(4), b"plain")
    assert bucket.get_snapshot("s", token(4)).headers["content-type"] == BYTES


def test_a_snapshot_is_read_piece_by_piece(client: Any, bucket: Bucket) -> None:
    body = b"0123456789" * 500_000
    bucket.create("s", b"data")
    bucket.publish("s", token(4), body, TEXT)
    with client.open_snapshot(bucket.id, "s") as found:
        assert (found.offset, found.next_offset, found.content_type) == (token(4), token(4), TEXT)
        pieces = list(found)
    assert b"".join(pieces) == body
    assert max(map(len, pieces)) < len(body)
    with client.open_snapshot(bucket.id, "s") as found:
        next(iter(found))  # and no more: whoever leaves early leaves nothing behind
    assert client.snapshot_offset(bucket.id, "s") == token(4)


def test_no_snapshot_is_none(client: Any, bucket: Bucket) -> None:
    bucket.create("s", b"data")
    assert client.snapshot(bucket.id, "s") is None
    assert client.snapshot_offset(bucket.id, "s") is None
    with pytest.raises(Refused) as caught:
        client.snapshot(bucket.id, "missing")
    assert caught.value.code == "STREAM_NOT_FOUND"


@pytest.mark.parametrize(("position", "status"), [(99, 409), (1, 410), (5, 400)])
def test_a_refused_snapshot_says_why(client: Any, bucket: Bucket, position: int, status: int) -> None:
    bucket.create("s", b"one")
    bucket.append("s", b"two")
    bucket.append("s", b"three")
    bucket.publish("s", token(3))
    with pytest.raises(Refused) as caught:
        client.publish_snapshot(bucket.id, "s", token(position), (b"piece" for _ in range(3)))
    assert caught.value.status == status
    assert caught.value.reason


def test_a_server_that_refuses_a_body_and_hangs_up_is_heard(tmp_path: Path) -> None:
    """It reads on for a while, so that its answer is seen, but not for 200 MiB. (`AsyncClient` may still lose
    the answer: its HTTP library gives up reading when writing fails.)"""
    with (
        ServerProcess(tmp_path / "data", {"PERENNIAL_MAX_SNAPSHOT": "1000"}) as server,
        Client(server.url) as client,
    ):
        Api(server.port).ask("PUT", "/v1/stream/s", {"Content-Type": TEXT}, b"data")
        with pytest.raises(Refused) as caught:
            client.publish_snapshot("default", "s", token(4), (bytes(1 << 20) for _ in range(200)))
    assert caught.value.status == 413


def test_the_offset_of_a_listing_will_do(client: Any, bucket: Bucket) -> None:
    bucket.create("s", b"one")
    (stream,) = client.streams(bucket.id)
    client.publish_snapshot(bucket.id, "s", stream.tail_offset, b"state")
    assert client.snapshot_offset(bucket.id, "s") == token(3)
    bucket.append("s", b"two")
    bucket.close("s")
    assert b"".join(message.data for message in client.tail(bucket.id, "s", stream.tail_offset)) == b"two"


def test_names_and_offsets_are_encoded_in_urls(client: Any, bucket: Bucket) -> None:
    """5: "Clients and servers MUST apply standard URL encoding/decoding when using offset values in path
    segments." """
    for name in ("100% & more? #1", "ünï|code", "snapshot", "a+b"):
        bucket.create(name, b"data")
        client.publish_snapshot(bucket.id, name, "0000000000000000_0000000000000004", b"state")
        assert client.snapshot(bucket.id, name) == Snapshot(b"state", BYTES, token(4))
        with client.bootstrap(bucket.id, name) as boot:
            assert boot.snapshot == Snapshot(b"state", BYTES, token(4))
    with pytest.raises(Refused) as caught:
        client.publish_snapshot(bucket.id, "a+b", "../../x", b"state")
    assert caught.value.status == 400


def test_the_latest_snapshot_is_found_even_when_it_is_replaced_on_the_way(
    client: Any, bucket: Bucket
) -> None:
    """2.2: "Clients MUST NOT depend on older snapshots remaining readable after overwrite." """
    bucket.create("s")
    offsets = [bucket.append("s", b"message") for _ in range(150)]
    bucket.publish("s", offsets[0], b"state at " + offsets[0].encode())

    def publish() -> None:
        for offset in offsets[1:]:
            bucket.publish("s", offset, b"state at " + offset.encode())

    publisher = threading.Thread(target=publish)
    publisher.start()
    seen = []
    while publisher.is_alive():
        found = client.snapshot(bucket.id, "s")
        assert found.data == b"state at " + found.offset.encode()
        seen.append(found.offset)
    publisher.join()
    assert seen == sorted(seen)
    assert client.snapshot(bucket.id, "s").offset == offsets[-1]
