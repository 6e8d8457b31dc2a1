"""Bootstrap, then tail, through the client: in order, and nothing twice or never, whatever breaks."""

import threading
from itertools import islice
from typing import Any

import pytest

from perennial.client import Disconnected, Message, Refused, Snapshot
from perennial.client.multipart import Part, PartReader
from tests.client.both import bucket, client, extensions_host, gateway_without_events, kind, new_client
from tests.client.cutting import cutting_proxy
from tests.extensions.api import BYTES, JSON, TEXT, ZERO, Api, Bucket, token
from tests.harness.server import ServerProcess

__all__ = ["bucket", "client", "extensions_host", "kind"]


def test_messages_come_in_order_one_per_part(client: Any, bucket: Bucket) -> None:
    """3.4: "Clients MUST parse /bootstrap as an ordered message sequence. Message boundaries come from MIME
    parts." """
    bodies = [b"one", b"", b"\r\n--x", b"two\r\n\r\n", b"x" * 300_000, b"--"]
    bucket.create("s", b"", BYTES)
    for body in bodies:
        if body:
            bucket.append("s", body, BYTES)
    bucket.publish("s", token(3), b"folded", TEXT)
    with client.bootstrap(bucket.id, "s") as boot:
        assert boot.snapshot == Snapshot(b"folded", TEXT, token(3))
        messages = list(boot.messages)
    assert [message.data for message in messages] == [body for body in bodies[1:] if body]
    assert {message.content_type for message in messages} == {BYTES}
    assert messages[-1].next_offset == boot.next_offset == bucket.head("s").next_offset
    assert not boot.closed


def test_a_stream_without_a_snapshot_has_none(client: Any, bucket: Bucket) -> None:
    bucket.create("s", b'[1,{"a":2}]', JSON)
    bucket.close("s")
    with client.bootstrap(bucket.id, "s") as boot:
        assert [message.data for message in boot.messages] == [b"1", b'{"a":2}']
        assert boot.snapshot is None
        assert boot.closed
        assert list(boot.tail()) == []
    with pytest.raises(Refused) as caught, client.bootstrap(bucket.id, "missing"):
        pass
    assert caught.value.status == 404


@pytest.mark.parametrize("content_type", [JSON, BYTES, TEXT])
def test_tailing_goes_on_where_the_bootstrap_ended(client: Any, bucket: Bucket, content_type: str) -> None:
    """2.1: "Clients MUST use server-returned Stream-Next-Offset values." 3.3: "After applying the bootstrap
    response, clients MUST continue tailing through the ordinary stream read APIs using the returned
    Stream-Next-Offset." """
    bodies = [b"%d" % number for number in range(10, 50)]
    bucket.create("s", bodies[0], content_type)
    bucket.publish("s", token(2), b"[10]")
    for body in bodies[1:10]:
        bucket.append("s", body, content_type)

    def write() -> None:
        for body in bodies[10:]:
            bucket.append("s", body, content_type)
        bucket.close("s")

    with client.bootstrap(bucket.id, "s") as boot:
        writer = threading.Thread(target=write)
        writer.start()
        assert boot.snapshot.data == b"[10]"
        before = [message.data for message in boot.messages]
        after = [message.data for message in boot.tail()]
        writer.join()
    assert before == bodies[1:10]
    if content_type == JSON:
        assert after == bodies[10:]
    assert b"".join(after) == b"".join(bodies[10:])
    assert boot.next_offset == bucket.head("s").next_offset


def test_who_leaves_a_tail_knows_where_to_go_on(client: Any, bucket: Bucket) -> None:
    bucket.create("s", b"[0]", JSON)
    with client.bootstrap(bucket.id, "s") as boot:
        for body in (b"1", b"2", b"3"):
            bucket.append("s", body, JSON)
        for message in boot.tail():
            assert boot.next_offset == message.next_offset
            if message.data == b"2":
                break
    bucket.close("s")
    assert [message.data for message in client.tail(bucket.id, "s", boot.next_offset)] == [b"3"]


def test_a_tail_prefers_sse_and_falls_back_to_long_poll(
    kind: str, bucket: Bucket, extensions_host: ServerProcess
) -> None:
    """3.3: "Clients SHOULD prefer GET {stream_url}?offset=<offset>&live=sse and fall back to … live=long-poll
    when SSE is unavailable." """
    bucket.create("s", b"[1,2]", JSON)
    bucket.append("s", b"3", JSON, stream_closed="true")
    with (
        gateway_without_events(extensions_host.port) as (url, asked),
        new_client(kind, url) as client,
    ):
        messages = list(client.tail(bucket.id, "s", "-1"))
    assert [message.data for message in messages] == [b"1", b"2", b"3"]
    modes = ["sse" if "live=sse" in path else "long-poll" for path in asked if "live=" in path]
    assert modes[0] == "sse"
    assert modes[-1] == "long-poll"
    assert modes == sorted(modes, reverse=True), "once is enough"


def test_every_byte_of_a_text_arrives_as_it_was(client: Any, bucket: Bucket) -> None:
    """Event streams know one kind of line end; a text may have three."""
    texts = [b"plain", b"two\nlines", b" lead", b"crlf\r\nand\rcr\n", b"\n", "grün".encode()]
    bucket.create("s")
    for text in texts:
        bucket.append("s", text)
    bucket.close("s")
    for offset in ("-1", ZERO, token(5)):
        data = b"".join(message.data for message in client.tail(bucket.id, "s", offset))
        assert data == b"".join(texts)[0 if offset != token(5) else 5 :]


def test_each_message_says_where_to_go_on(client: Any, bucket: Bucket) -> None:
    bucket.create("s", b'[1,"two",{"three":3}]', JSON)
    bucket.close("s")
    messages = list(client.tail(bucket.id, "s", "-1"))
    assert messages == [
        Message(b"1", JSON, token(1)),
        Message(b'"two"', JSON, token(6)),
        Message(b'{"three":3}', JSON, token(17)),
    ]
    for index, message in enumerate(messages):
        assert list(client.tail(bucket.id, "s", message.next_offset)) == messages[index + 1 :]


def test_a_tail_that_falls_behind_a_snapshot_says_so(client: Any, bucket: Bucket) -> None:
    """3.4: "When a server returns 410 Gone for a read (because retention has advanced), clients SHOULD call
    /bootstrap to rebuild state, then continue tailing" """
    bucket.create("s", b"one")
    bucket.append("s", b"two")
    bucket.publish("s", token(6))
    with pytest.raises(Refused) as caught:
        list(client.tail(bucket.id, "s", token(3)))
    assert (caught.value.status, caught.value.code) == (410, "OFFSET_TRIMMED")
    with client.bootstrap(bucket.id, "s") as boot:
        assert boot.snapshot.offset == token(6)


@pytest.mark.parametrize("content_type", [JSON, BYTES])
def test_lost_connections_lose_and_repeat_nothing(
    kind: str, bucket: Bucket, extensions_host: ServerProcess, content_type: str
) -> None:
    bodies: list[bytes] = []
    bucket.create("s", b"", content_type)
    with cutting_proxy(extensions_host.port) as cutter, new_client(kind, cutter.url) as client:
        cutter.cuts = [2500, 700, 1800, 3]  # the first connection answers HEAD, too

        def write() -> None:
            while cutter.broken < 3 and len(bodies) < 5000:
                bodies.append(b'"message %04d"' % len(bodies))
                bucket.append("s", bodies[-1], content_type)
            bucket.close("s")

        writer = threading.Thread(target=write)
        writer.start()
        received = [message.data for message in client.tail(bucket.id, "s", ZERO)]
        writer.join()
        assert cutter.broken >= 3
    assert b"".join(received) == b"".join(bodies)
    if content_type == JSON:
        assert received == bodies


def test_a_tail_outlives_the_server(kind: str, server: ServerProcess) -> None:
    bucket = Api(server.port).new_bucket()
    bucket.create("s", b"[1]", JSON)
    with new_client(kind, server.url) as client:
        tail = iter(client.tail(bucket.id, "s", "-1"))
        assert next(tail).data == b"1"
        server.kill()
        server.start()
        bucket.append("s", b"[2,3]", JSON)
        bucket.close("s")
        assert [message.data for message in tail] == [b"2", b"3"]


def test_patience_ends(kind: str, server: ServerProcess) -> None:
    bucket = Api(server.port).new_bucket()
    bucket.create("s", b"[1]", JSON)
    with new_client(kind, server.url, patience=0.1) as client:
        tail = iter(client.tail(bucket.id, "s", "-1"))
        assert next(tail).data == b"1"
        server.stop()
        with pytest.raises(Disconnected) as caught:
            list(islice(tail, 1))
    assert caught.value.next_offset == 1


def test_a_bootstrap_that_breaks_off_is_noticed(
    kind: str, bucket: Bucket, extensions_host: ServerProcess
) -> None:
    bucket.create("s", b"", BYTES)
    for _ in range(20):
        bucket.append("s", b"x" * 10_000, BYTES)
    with cutting_proxy(extensions_host.port) as cutter, new_client(kind, cutter.url) as client:
        cutter.cuts = [100_000]
        with pytest.raises(Disconnected), client.bootstrap(bucket.id, "s") as boot:
            list(boot.messages)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_parts_are_found_wherever_the_pieces_are_cut(size: int) -> None:
    body = (
        b"--b\r\nContent-Type: a/b\r\n\r\n\r\n--b\r\ncontent-type:c/d\r\n\r\n1\r\n--\r\n2"
        b"\r\n--b\r\nX: y\r\n\r\n3\r\n--b--\r\n"
    )
    reader = PartReader('multipart/mixed; boundary="b"')
    parts = [part for at in range(0, len(body), size) for part in reader.feed(body[at : at + size])]
    assert parts == [Part("a/b", b""), Part("c/d", b"1\r\n--\r\n2"), Part("text/plain", b"3")]
    assert reader.ended
