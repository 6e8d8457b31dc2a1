"""Bootstrap (extensions, 3): a snapshot and everything after it, in one answer."""

import threading

import pytest

from tests.extensions.api import BYTES, JSON, TEXT, ZERO, Bucket, parse_bootstrap, parse_multipart, token

EMPTY = (BYTES, b"")


def test_a_stream_without_a_snapshot_begins_with_an_empty_part(bucket: Bucket) -> None:
    """3.2: "If no snapshot exists, the server MUST still emit an empty first part, Stream-Snapshot-Offset
    MUST be -1, and that empty part's Content-Type MUST be application/octet-stream. Update parts then begin
    at the earliest retained offset." """
    bucket.create("s", b"one", TEXT)
    bucket.append("s", b"two")
    boot = bucket.bootstrap("s")
    assert boot.answer.headers["stream-snapshot-offset"] == "-1"
    assert boot.answer.next_offset == token(6)
    assert boot.parts == [EMPTY, (TEXT, b"one"), (TEXT, b"two")]


def test_an_empty_stream_has_the_empty_part_only(bucket: Bucket) -> None:
    """3.2: "the server MUST still emit an empty first part" """
    bucket.create("s", b"", JSON)
    boot = bucket.bootstrap("s")
    assert boot.parts == [EMPTY]
    assert (boot.answer.headers["stream-snapshot-offset"], boot.answer.next_offset) == ("-1", ZERO)


def test_the_first_part_is_the_snapshot_as_it_was_published(bucket: Bucket) -> None:
    """3.2: "If a snapshot exists, the part body MUST be the raw snapshot bytes and the part Content-Type MUST
    equal the snapshot blob's stored content type." """
    snapshot = bytes(range(256)) * 20_000
    bucket.create("s", b"data", TEXT)
    bucket.publish("s", token(4), snapshot, "application/x-fold; v=1")
    bucket.append("s", b"more")
    boot = bucket.bootstrap("s")
    assert boot.parts == [("application/x-fold; v=1", snapshot), (TEXT, b"more")]
    assert boot.answer.headers["stream-snapshot-offset"] == token(4)
    assert boot.answer.next_offset == token(8)


def test_each_part_is_exactly_one_message(bucket: Bucket) -> None:
    """3.2: "Each part body MUST be exactly one retained update message, and the part Content-Type MUST be the
    content type of that update." "Implementations MUST preserve the same retained-message boundaries …, and
    they MUST NOT reinterpret or reframe binary payloads when constructing bootstrap parts." """
    bodies = [bytes([number % 256]) * (1 + number * 37) for number in range(200)]
    bucket.create("s", b"", BYTES)
    for body in bodies:
        bucket.append("s", body, BYTES)
    boot = bucket.bootstrap("s")
    assert boot.messages == bodies
    assert {part.content_type for part in boot.parts} == {BYTES}


def test_json_messages_are_parts_of_their_own_and_not_an_array(bucket: Bucket) -> None:
    """3.2: "Each MIME part is one logical bootstrap message." The raw value, as it was sent."""
    bucket.create("s", b'[{"op": "set" },[1, 2],null]', JSON)
    bucket.append("s", b' "x" ', JSON)
    bucket.append("s", b"[[]]", JSON)
    parts = bucket.bootstrap("s").parts
    assert [part.body for part in parts[1:]] == [b'{"op": "set" }', b"[1, 2]", b"null", b'"x"', b"[]"]
    assert {part.content_type for part in parts[1:]} == {JSON}
    bucket.publish("s", token(14), b"folded", TEXT)
    assert bucket.bootstrap("s").messages == [b"[1, 2]", b"null", b'"x"', b"[]"]


def test_payloads_that_look_like_delimiters_are_payloads(bucket: Bucket) -> None:
    """3.2: "The multipart boundary, not any outer binary framing, defines the bootstrap message boundaries."
    "Servers MUST NOT wrap the entire bootstrap response in an outer binary framing container." """
    bucket.create("s", b"", BYTES)
    first = bucket.bootstrap("s").answer.headers["content-type"].partition("boundary=")[2].encode()
    nasty = [
        b"\r\n--" + first,
        b"\r\n--" + first + b"--\r\n",
        b"--" + first + b"\r\nContent-Type: text/html\r\n\r\n",
        b"\r\n",
        b"\r\n--perennial-",
        b"\n\n--\r\n--\r\n",
        b"Content-Type: x\r\n\r\n",
    ]
    for body in nasty:
        bucket.append("s", body, BYTES)
    bucket.publish("s", token(len(nasty[0])), nasty[1])
    boot = bucket.bootstrap("s")
    assert boot.snapshot.body == nasty[1]
    assert boot.messages == nasty[1:]
    boundaries = {bucket.bootstrap("s").answer.headers["content-type"] for _ in range(5)}
    assert len(boundaries) == 5, "a boundary that was seen before can be put into a message"


def test_headers_of_a_bootstrap(bucket: Bucket) -> None:
    """3.2: "Content-Type: multipart/mixed; boundary=<token>", Stream-Snapshot-Offset, Stream-Next-Offset,
    Stream-Up-To-Date; it is never kept by a cache."""
    bucket.create("s", b"data")
    answer = bucket.bootstrap("s").answer
    assert answer.headers["content-type"].startswith("multipart/mixed; boundary=")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["stream-up-to-date"] == "true"
    assert "stream-closed" not in answer.headers
    bucket.close("s")
    assert bucket.bootstrap("s").answer.headers["stream-closed"] == "true"


@pytest.mark.parametrize("live", ["sse", "long-poll", "", "nonsense"])
def test_live_is_refused(bucket: Bucket, live: str) -> None:
    """3.1: "Servers SHOULD reject any live query parameter on /bootstrap with 400 Bad Request." 3.3:
    "/bootstrap does not support live=sse or live=long-poll." """
    bucket.create("s", b"data")
    assert bucket.api.ask("GET", bucket.path("s", "bootstrap", {"live": live})).status == 400
    assert bucket.api.ask("GET", bucket.path("s", "bootstrap") + "?live=sse&live=sse").status == 400


def test_other_query_parameters_mean_nothing(bucket: Bucket) -> None:
    """3.1: "It does not define any query parameters of its own." """
    bucket.create("s", b"data")
    path = bucket.path("s", "bootstrap", {"offset": "now", "cursor": "x", "limit": "1"})
    assert parse_bootstrap(bucket.api.ask("GET", path)).messages == [b"data"]


def test_a_missing_stream_has_no_bootstrap(bucket: Bucket) -> None:
    """3.2: "404 Not Found: Stream does not exist." """
    assert bucket.api.ask("GET", bucket.path("missing", "bootstrap")).status == 404
    bucket.create("s")
    bucket.delete("s")
    assert bucket.api.ask("GET", bucket.path("s", "bootstrap")).status == 404


def test_a_fork_bootstraps_with_what_it_inherits(bucket: Bucket) -> None:
    """3.2: "Retained updates after the snapshot point, one update message per part." """
    bucket.create("s", b"[1,22,333]", JSON)
    bucket.append("s", b"[4,5]", JSON)
    bucket.fork("s", "f", b'["f"]', stream_fork_offset=token(6), stream_fork_sub_offset="1")
    bucket.fork("f", "g", b'["g"]')
    bucket.append("s", b"6", JSON)
    assert bucket.bootstrap("f").messages == [b"1", b"22", b"333", b"4", b'"f"']
    assert bucket.bootstrap("g").messages == [b"1", b"22", b"333", b"4", b'"f"', b'"g"']
    bucket.publish("g", token(3), b"folded")
    assert bucket.bootstrap("g").messages == [b"333", b"4", b'"f"', b'"g"']


def test_tailing_from_a_bootstrap_misses_and_repeats_nothing(bucket: Bucket) -> None:
    """3.3: "After applying the bootstrap response, clients MUST continue tailing through the ordinary stream
    read APIs using the returned Stream-Next-Offset." One consistent view, while appends and snapshots go
    on."""
    bucket.create("s", b"", JSON)
    sent = 300
    stop = threading.Event()

    def write() -> None:
        for number in range(sent):
            offset = bucket.append("s", b"%d" % number, JSON)
            if number % 60 == 30:
                # The fold: how many messages there were.
                bucket.publish("s", offset, b"%d" % (number + 1), TEXT)
        bucket.close("s")
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    try:
        while not stop.is_set():
            boot = bucket.bootstrap("s")
            folded = int(boot.snapshot.body or b"0")
            messages = [int(message) for message in boot.messages]
            assert messages == list(range(folded, folded + len(messages)))
            answer = bucket.get("s", offset=boot.answer.next_offset, live="long-poll")
            if answer.status == 410:
                continue  # another snapshot in between
            first = answer.body.strip(b"[]").partition(b",")[0]
            if answer.status == 200 and first:
                assert int(first) == folded + len(messages)
                seen += 1
    finally:
        writer.join()
    assert seen > 0
    boot = bucket.bootstrap("s")
    assert int(boot.snapshot.body) + len(boot.messages) == sent


def test_appends_during_a_bootstrap_are_not_in_it(bucket: Bucket) -> None:
    """3.2: "Stream-Next-Offset: The next offset after all returned data." However slowly it is read."""
    messages = [b"%06d" % number + b"." * 100_000 for number in range(60)]
    bucket.create("s", b"", BYTES)
    for message in messages:
        bucket.append("s", message, BYTES)
    bucket.publish("s", token(len(messages[0])), b"S" * 3_000_000)
    with bucket.api.open("GET", bucket.path("s", "bootstrap")) as wire:
        status, headers = wire.head()
        assert status == 200
        chunks = wire.chunks()
        body = next(chunks)
        # It stands still now: sockets hold less than this. Everything may change behind its back.
        for _ in range(5):
            bucket.append("s", b"late", BYTES)
        bucket.publish("s", token(len(messages[0]) * 30), b"new")
        bucket.get("s", offset="now", live="long-poll")  # time to clean up
        bucket.delete("s")
        body += b"".join(chunks)
    parts = parse_multipart(headers["content-type"], body)
    assert parts[0].body == b"S" * 3_000_000
    assert [part.body for part in parts[1:]] == messages[1:]
    assert headers["stream-next-offset"] == token(sum(map(len, messages)))
