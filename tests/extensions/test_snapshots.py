"""Snapshots (extensions, 2): publishing, reading, replacing, and what may not be deleted."""

import threading
from itertools import pairwise
from urllib.parse import urljoin

import pytest

from tests.extensions.api import BYTES, JSON, TEXT, ZERO, Api, Bucket, token

# 2.1 Offsets


def test_offsets_sort_as_text_and_as_numbers_and_count_payload_bytes(bucket: Bucket) -> None:
    """2.1: "Servers MUST maintain consistency between numeric semantics and lexicographic ordering. Clients
    MAY parse two non-reserved offset tokens as integers and subtract them to compute the cumulative payload
    bytes between two boundaries." """
    sizes = [1, 9, 90, 900, 9000, 5]
    offsets = [bucket.create("s").next_offset]
    offsets += [bucket.append("s", b"x" * size) for size in sizes]
    assert offsets == sorted(offsets)
    numbers = [int(offset) for offset in offsets]
    assert [after - before for before, after in pairwise(numbers)] == sizes
    assert numbers[0] == 0  # "The reserved offset -1 is treated as 0 in this arithmetic."


@pytest.mark.parametrize(
    ("content_type", "bodies"),
    [
        (TEXT, [b"one", b"two", b"three"]),
        (BYTES, [b"\x00" * 9, b"\r\n--x\r\n"]),
        (JSON, [b'[1,{"a":[2,3]}]', b'"x"', b"[[4,5],[6]]"]),
    ],
)
def test_one_boundary_model_for_reads_snapshots_and_bootstrap(
    bucket: Bucket, content_type: str, bodies: list[bytes]
) -> None:
    """2.1, 3.2: "Servers that expose snapshots and /bootstrap as message sequences MUST use one consistent
    retained-message boundary model across ordinary reads, snapshot-offset validation, and bootstrap
    responses." """
    bucket.create("s", b"", content_type)
    for body in bodies:
        bucket.append("s", body, content_type)
    messages = bucket.bootstrap("s").messages
    ends = [0]
    for message in messages:
        ends.append(ends[-1] + len(message))
    assert int(bucket.head("s").next_offset) == ends[-1]
    for position in set(range(ends[-1])) - set(ends):
        assert bucket.try_publish("s", token(position)).status == 400
        if content_type == JSON:
            assert bucket.get("s", offset=token(position)).status == 400
    for index, end in enumerate(ends):
        bucket.publish("s", token(end))
        assert bucket.bootstrap("s").messages == messages[index:]
        assert bucket.get("s", offset=token(end)).status == 200


# 2.2 Publish


def test_the_content_type_of_a_snapshot_is_kept(bucket: Bucket) -> None:
    """2.2: "Content-Type: The content type of the snapshot blob. Servers MUST store this value and return it
    on subsequent reads. Defaults to application/octet-stream." """
    bucket.create("s", b"data", TEXT)
    for content_type in ("application/vnd.crdt+binary; v=2", JSON, "text/plain; charset=utf-8"):
        bucket.publish("s", token(4), b"{}", content_type)
        assert bucket.get_snapshot("s", token(4)).headers["content-type"] == content_type
        assert bucket.bootstrap("s").snapshot.content_type == content_type
    bucket.publish("s", token(4), b"{}", None)
    assert bucket.get_snapshot("s", token(4)).headers["content-type"] == BYTES
    assert bucket.head("s").headers["content-type"] == TEXT


MALFORMED = [
    "-1",
    "now",
    "0",
    "4",
    "000000000000004",
    "00000000000000004",
    "abc",
    "+000000000000004",
    "%20",
    "4_4",
]


@pytest.mark.parametrize("offset", MALFORMED)
def test_a_malformed_snapshot_offset_is_400_for_every_method(bucket: Bucket, offset: str) -> None:
    """2.2: "400 Bad Request: snapshot_offset is invalid". Malformed comes before missing."""
    bucket.create("s", b"data")
    assert bucket.try_publish("s", offset).status == 400
    assert bucket.try_publish("missing", offset).status == 400
    assert bucket.get_snapshot("s", offset).status == 400
    assert bucket.delete_snapshot("s", offset).status == 400
    assert bucket.get("s").body == b"data"


def test_a_malformed_content_type_is_400(bucket: Bucket) -> None:
    """2.2: "400 Bad Request" """
    bucket.create("s", b"data")
    assert bucket.try_publish("s", token(4), b"x", "nonsense").status == 400
    assert bucket.latest_snapshot("s").status == 404


def test_publishing_for_a_missing_stream_is_404(bucket: Bucket) -> None:
    """2.2: "404 Not Found: Stream does not exist." """
    assert bucket.try_publish("missing", ZERO).status == 404
    assert bucket.try_publish("missing", token(99)).status == 404


def test_publishing_for_a_deleted_stream_that_forks_need_is_410(bucket: Bucket) -> None:
    bucket.create("s", b"data")
    bucket.fork("s", "f")
    bucket.delete("s")
    for answer in (
        bucket.try_publish("s", token(4)),
        bucket.latest_snapshot("s"),
        bucket.get_snapshot("s", token(4)),
        bucket.delete_snapshot("s", token(4)),
        bucket.api.ask("GET", bucket.path("s", "bootstrap")),
    ):
        assert answer.status == 410


def test_beyond_the_tail_is_409(bucket: Bucket) -> None:
    """2.2: "409 Conflict: snapshot_offset exceeds the current tail" """
    bucket.create("s", b"data")
    for position in (5, 1000, 10**16 - 1):
        assert bucket.try_publish("s", token(position)).status == 409
    assert bucket.try_publish("s", "0000000000000001_0000000000000000").status == 409
    assert bucket.latest_snapshot("s").status == 404


def test_below_the_retained_range_is_410(bucket: Bucket) -> None:
    """2.2: "410 Gone: snapshot_offset is older than the current earliest retained offset." Aligned or not."""
    bucket.create("s", b"one")
    bucket.append("s", b"two")
    bucket.publish("s", token(6), b"latest")
    for position in (0, 1, 3, 5):
        assert bucket.try_publish("s", token(position)).status == 410
    assert bucket.get_snapshot("s", token(6)).body == b"latest"


def test_refusals_come_in_their_order(bucket: Bucket) -> None:
    """2.2: malformed, missing, beyond the tail, below the retained range, not on a boundary."""
    bucket.create("s", b"onetwo")
    bucket.append("s", b"three")
    bucket.publish("s", token(6))
    assert bucket.try_publish("missing", "-1").status == 400
    assert bucket.try_publish("missing", token(999)).status == 404
    assert bucket.try_publish("s", token(999)).status == 409
    assert bucket.try_publish("s", token(3)).status == 410
    assert bucket.try_publish("s", token(8)).status == 400
    assert bucket.try_publish("s", token(11)).status == 204


def test_a_snapshot_at_the_beginning_trims_nothing(bucket: Bucket) -> None:
    """2.2: "the server MUST treat snapshot_offset as the new earliest retained offset": zero is -1."""
    bucket.create("s", b"data")
    bucket.publish("s", ZERO, b"nothing yet")
    assert bucket.get("s", offset="-1").body == b"data"
    assert bucket.get("s").body == b"data"
    assert bucket.bootstrap("s").snapshot.body == b"nothing yet"
    assert bucket.bootstrap("s").messages == [b"data"]
    assert bucket.head("s").headers["stream-snapshot-offset"] == ZERO


def test_the_pair_form_of_an_offset_is_understood_and_never_minted(bucket: Bucket) -> None:
    """5: offsets of the reference server's form are an alias."""
    bucket.create("s", b"data")
    bucket.publish("s", "0000000000000000_0000000000000004", b"paired")
    assert bucket.latest_snapshot("s").headers["location"].endswith(f"/snapshot/{token(4)}")
    assert bucket.get_snapshot("s", "0000000000000000_0000000000000004").body == b"paired"


def test_an_empty_snapshot_is_a_snapshot(bucket: Bucket) -> None:
    bucket.create("s", b"data")
    bucket.publish("s", token(4), b"", TEXT)
    answer = bucket.get_snapshot("s", token(4))
    assert (answer.status, answer.body, answer.headers["content-type"]) == (200, b"", TEXT)
    assert bucket.bootstrap("s").parts == [(TEXT, b"")]


def test_a_new_snapshot_replaces_the_old_one_at_once(bucket: Bucket) -> None:
    """2.2: "Publishing a new snapshot replaces the previously visible snapshot immediately." """
    bucket.create("s", b"one")
    bucket.append("s", b"two")
    bucket.publish("s", token(3), b"first")
    bucket.publish("s", token(6), b"second")
    assert bucket.get_snapshot("s", token(3)).status == 404
    assert bucket.get_snapshot("s", token(6)).body == b"second"
    bucket.publish("s", token(6), b"better", JSON)  # the same offset again
    answer = bucket.get_snapshot("s", token(6))
    assert (answer.body, answer.headers["content-type"]) == (b"better", JSON)


def test_a_reader_of_a_replaced_snapshot_gets_it_whole(bucket: Bucket) -> None:
    """2.2: "The superseded snapshot MAY be garbage-collected asynchronously": not under a reader's hands."""
    size = 8 << 20
    bucket.create("s", b"data")
    bucket.publish("s", token(4), b"old" + b"." * size)
    with bucket.api.open("GET", bucket.snapshot_path("s", token(4))) as wire:
        assert wire.head()[0] == 200
        chunks = wire.chunks()
        first = next(chunks)
        for number in range(3):  # each of these is followed by a look at what may be removed
            bucket.publish("s", token(4), b"new %d" % number)
            bucket.get("s", offset=token(4), live="long-poll")
        whole = first + b"".join(chunks)
    assert (len(whole), whole[:4], whole[-1:]) == (size + 3, b"old.", b".")
    assert bucket.get_snapshot("s", token(4)).body == b"new 2"


def test_a_snapshot_survives_a_closed_stream(bucket: Bucket) -> None:
    """A closed stream takes no data, but its history may still be folded."""
    bucket.create("s", b"data")
    bucket.close("s")
    bucket.publish("s", token(4), b"all of it")
    answer = bucket.get("s", offset=token(4))
    assert (answer.status, answer.headers["stream-closed"]) == (200, "true")
    assert bucket.get_snapshot("s", token(4)).body == b"all of it"


def test_of_racing_publishers_the_highest_offset_stays(bucket: Bucket) -> None:
    """2.2: "410 Gone: snapshot_offset is older than the current earliest retained offset", raced too."""
    messages = [b"message %03d" % number for number in range(40)]
    bucket.create("s")
    offsets = [bucket.append("s", message) for message in messages]
    statuses: dict[str, int] = {}

    def publish(offset: str) -> None:
        statuses[offset] = bucket.try_publish("s", offset, b"state at " + offset.encode()).status

    threads = [threading.Thread(target=publish, args=(offset,)) for offset in reversed(offsets)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses.values()) <= {204, 410}
    assert statuses[offsets[-1]] == 204
    boot = bucket.bootstrap("s")
    assert boot.snapshot.body == b"state at " + offsets[-1].encode()
    assert boot.messages == []


# 2.3, 2.4, 2.5 Reading


def test_the_latest_snapshot_is_a_redirect_away(bucket: Bucket) -> None:
    """2.3: "307 Temporary Redirect when a latest snapshot exists. The Location header points to
    {stream_url}/snapshot/{snapshot_offset}." "404 Not Found when no snapshot exists." """
    name = "with space/and slash".replace("/", "|")
    bucket.create(name, b"data")
    assert bucket.latest_snapshot(name).status == 404
    bucket.publish(name, token(4), b"state")
    answer = bucket.latest_snapshot(name)
    assert (answer.status, answer.body) == (307, b"")
    location = urljoin(f"http://test{bucket.snapshot_path(name)}", answer.headers["location"])
    assert location == f"http://test{bucket.snapshot_path(name, token(4))}"
    assert bucket.api.ask("GET", location.removeprefix("http://test")).body == b"state"
    assert "no-store" in answer.headers["cache-control"]
    assert bucket.latest_snapshot("missing").status == 404


def test_head_names_the_latest_snapshot(bucket: Bucket) -> None:
    """2.4: "Servers SHOULD include Stream-Snapshot-Offset when a latest visible snapshot exists for the
    stream." "Absence of Stream-Snapshot-Offset means the stream has no visible snapshot." "When present, the
    value MUST refer to the same latest visible snapshot that GET {stream_url}/snapshot would resolve to." """
    bucket.create("s", b"one")
    assert "stream-snapshot-offset" not in bucket.head("s").headers
    bucket.append("s", b"two")
    for position in (3, 6):
        bucket.publish("s", token(position))
        named = bucket.head("s").headers["stream-snapshot-offset"]
        assert named == token(position)
        assert bucket.latest_snapshot("s").headers["location"].endswith(f"/snapshot/{named}")
    assert bucket.head("s").next_offset == token(6)


def test_a_snapshot_is_read_with_all_its_headers(bucket: Bucket) -> None:
    """2.5: Content-Type, Stream-Snapshot-Offset, Stream-Next-Offset, Stream-Up-To-Date."""
    bucket.create("s", b"data", TEXT)
    bucket.publish("s", token(4), b"state", JSON)
    answer = bucket.get_snapshot("s", token(4))
    assert (answer.status, answer.body) == (200, b"state")
    told = {name: answer.headers.get(name) for name in ("content-type", "stream-up-to-date")}
    assert told == {"content-type": JSON, "stream-up-to-date": "true"}
    assert answer.headers["stream-snapshot-offset"] == token(4)
    assert answer.next_offset == token(4)  # the range ends before it, so reading goes on there
    bucket.append("s", b"more")
    later = bucket.get_snapshot("s", token(4))
    assert "stream-up-to-date" not in later.headers
    assert bucket.get("s", offset=later.next_offset).body == b"more"
    head = bucket.api.ask("HEAD", bucket.snapshot_path("s", token(4)))
    assert (head.status, head.body, head.next_offset) == (200, b"", token(4))


def test_a_snapshot_that_is_not_there_is_404(bucket: Bucket) -> None:
    """2.5: "404 Not Found: Snapshot does not exist or has been garbage-collected." """
    bucket.create("s", b"data")
    bucket.append("s", b"more")
    assert bucket.get_snapshot("s", token(4)).status == 404
    bucket.publish("s", token(4))
    for position in (0, 8, 99):
        assert bucket.get_snapshot("s", token(position)).status == 404
    assert bucket.get_snapshot("missing", token(4)).status == 404


# 2.6 Delete


def test_the_latest_snapshot_cannot_be_deleted(bucket: Bucket) -> None:
    """2.6: "409 Conflict: snapshot_offset refers to the latest visible snapshot and cannot be deleted because
    /bootstrap would become incomplete." "404 Not Found: Snapshot does not exist or has been superseded." """
    bucket.create("s", b"one")
    bucket.append("s", b"two")
    assert bucket.delete_snapshot("s", token(3)).status == 404
    bucket.publish("s", token(3))
    assert bucket.delete_snapshot("s", token(3)).status == 409
    bucket.publish("s", token(6), b"state")
    assert bucket.delete_snapshot("s", token(3)).status == 404
    assert bucket.delete_snapshot("s", token(6)).status == 409
    assert bucket.delete_snapshot("missing", token(6)).status == 404
    assert bucket.bootstrap("s").snapshot.body == b"state"


# Lifetimes


def test_a_recreated_stream_has_no_snapshot(bucket: Bucket) -> None:
    bucket.create("s", b"data")
    bucket.publish("s", token(4))
    bucket.delete("s")
    assert bucket.latest_snapshot("s").status == 404
    bucket.create("s", b"anew")
    assert bucket.latest_snapshot("s").status == 404
    assert bucket.get("s", offset="-1").body == b"anew"


# 5 URL encoding


def test_percent_encoded_offsets_are_decoded(bucket: Bucket) -> None:
    """5: "Clients and servers MUST apply standard URL encoding/decoding when using offset values in path
    segments." """
    bucket.create("s", b"data")
    encoded = "".join(f"%{ord(digit):02X}" for digit in token(4))
    path = bucket.path("s", f"snapshot/{encoded}")
    assert bucket.api.ask("PUT", path, {}, b"state").status == 204
    assert bucket.api.ask("GET", path).body == b"state"
    assert bucket.api.ask("GET", bucket.path("s", f"%73napshot/{token(4)}")).body == b"state"
    assert bucket.api.ask("PUT", bucket.path("s", f"%73napshot/{token(4)}"), {}, b"again").status == 204
    assert bucket.get_snapshot("s", token(4)).body == b"again"


def test_snapshots_of_default_streams_are_served_below_ds(api: Api) -> None:
    """2: the base surface's streams are those of the bucket `default`, snapshots and all."""
    default = Bucket(api, "default")
    assert api.ask("PUT", "/v1/stream/folded", {"Content-Type": TEXT}, b"data").status == 201
    default.publish("folded", token(4), b"state")
    assert api.ask("HEAD", "/v1/stream/folded").headers["stream-snapshot-offset"] == token(4)
    assert api.ask("GET", "/v1/stream/folded?offset=-1").status == 410
