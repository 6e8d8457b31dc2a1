"""Base protocol, 5.2.1: idempotent producers."""

import threading
from pathlib import Path

import pytest

from tests.harness.server import ServerProcess
from tests.spec.streams import Stream

SAFE = 2**53 - 1


@pytest.mark.parametrize(
    "headers",
    [
        {"producer_id": "p"},
        {"producer_epoch": "0"},
        {"producer_seq": "0"},
        {"producer_id": "p", "producer_epoch": "0"},
        {"producer_id": "p", "producer_seq": "0"},
        {"producer_epoch": "0", "producer_seq": "0"},
    ],
)
def test_some_producer_headers_are_400(stream: Stream, headers: dict[str, str]) -> None:
    """5.2.1: "All three producer headers MUST be provided together or none at all. If only some headers are
    provided, servers MUST return 400 Bad Request"."""
    stream.create()
    assert stream.post(b"x", **headers).status == 400
    assert stream.close(**headers).status == 400
    assert stream.read() == b""
    assert "stream-closed" not in stream.head().headers


def test_an_empty_producer_id_is_400(stream: Stream) -> None:
    """5.2.1: Producer-Id "MUST be a non-empty string; empty values result in 400 Bad Request"."""
    stream.create()
    assert stream.produce(b"x", "", 0, 0).status == 400


@pytest.mark.parametrize("header", ["producer_epoch", "producer_seq"])
@pytest.mark.parametrize("value", ["-1", "abc", "1.0", "1e3", "", str(2**53), "9" * 30, "0" * 5000 + "x"])
def test_epoch_and_sequence_are_safe_integers(stream: Stream, header: str, value: str) -> None:
    """5.2.1: Producer-Epoch and Producer-Seq "MUST be a non-negative integer ≤ 2^53-1"; 400 otherwise."""
    stream.create()
    headers = {"producer_id": "p", "producer_epoch": "0", "producer_seq": "0"} | {header: value}
    assert stream.post(b"x", **headers).status == 400
    assert stream.read() == b""


def test_the_largest_epoch_is_accepted(stream: Stream) -> None:
    """5.2.1: "MUST be a non-negative integer ≤ 2^53-1"."""
    stream.create()
    answer = stream.produce(b"x", "p", SAFE, 0)
    assert answer.status == 200
    assert answer.headers["producer-epoch"] == str(SAFE)


def test_new_data_is_200_and_a_repeat_204(stream: Stream) -> None:
    """5.2.1: "200 OK: Append successful (new data); 204 No Content: Duplicate append"; both echo the epoch
    and tell "the highest accepted sequence number"."""
    stream.create()
    for seq in range(3):
        answer = stream.produce(b"%d" % seq, "p", 4, seq)
        assert answer.status == 200
        assert (answer.headers["producer-epoch"], answer.headers["producer-seq"]) == ("4", str(seq))
    for seq in range(3):
        answer = stream.produce(b"again", "p", 4, seq)
        assert answer.status == 204
        assert (answer.headers["producer-epoch"], answer.headers["producer-seq"]) == ("4", "2")
        assert answer.next_offset == "0000000000000003"
    assert stream.read() == b"012"


def test_a_gap_is_409_and_told_what_was_expected(stream: Stream) -> None:
    """5.2.1: "409 Conflict: Sequence gap detected. Response includes Producer-Expected-Seq and
    Producer-Received-Seq headers"."""
    stream.create()
    stream.produce(b"0", "p", 0, 0)
    answer = stream.produce(b"5", "p", 0, 5)
    assert answer.status == 409
    assert answer.headers["producer-expected-seq"] == "1"
    assert answer.headers["producer-received-seq"] == "5"
    assert stream.produce(b"1", "p", 0, 1).status == 200, "and nothing was changed"


def test_a_stale_epoch_is_403_and_told_the_current_one(stream: Stream) -> None:
    """5.2.1: "403 Forbidden: Stale producer epoch (zombie fencing). Response includes Producer-Epoch header
    with current server epoch"."""
    stream.create()
    stream.produce(b"x", "p", 5, 0)
    answer = stream.produce(b"y", "p", 4, 1)
    assert answer.status == 403
    assert answer.headers["producer-epoch"] == "5"
    assert stream.produce(b"z", "p", 6, 0).status == 200
    assert stream.read() == b"xz"


def test_a_new_epoch_starts_at_zero(stream: Stream) -> None:
    """5.2.1: "400 Bad Request: Invalid producer headers (e.g., non-integer values, epoch increase with seq
    != 0)"."""
    stream.create()
    stream.produce(b"x", "p", 0, 0)
    assert stream.produce(b"y", "p", 1, 1).status == 400
    assert stream.produce(b"y", "p", 1, 0).status == 200


def test_requests_of_one_producer_are_judged_one_at_a_time(stream: Stream) -> None:
    """5.2.1: "Servers MUST serialize validation + append operations per (stream, producerId) pair": the same
    request, sent many times at once, happens once."""
    stream.create()
    statuses: list[int] = []

    def send() -> None:
        statuses.extend(stream.produce(b"%d," % seq, "p", 0, seq).status for seq in range(8))

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stream.read() == b"0,1,2,3,4,5,6,7,"
    assert statuses.count(200) == 8
    assert statuses.count(204) == 40


def test_producer_state_and_data_become_durable_together(tmp_path: Path) -> None:
    """5.2.1: "servers SHOULD commit producer state updates and log appends atomically": after a crash a
    retry is recognised."""
    with ServerProcess(tmp_path / "data") as server:
        stream = Stream(server.port, "a")
        stream.create()
        for seq in range(20):
            assert stream.produce(b"%d," % seq, "p", 0, seq).status == 200
            if seq == 12:
                server.kill()
                server.start()
                assert stream.produce(b"%d," % seq, "p", 0, seq).status == 204
        assert stream.read() == b"".join(b"%d," % seq for seq in range(20))


@pytest.mark.parametrize("body", [b"", b"the end"])
def test_the_closing_request_may_be_repeated(stream: Stream, body: bytes) -> None:
    """5.2.1: "If the stream was already closed by the same (producerId, epoch, seq) tuple, servers SHOULD
    return 204 No Content with Stream-Closed: true"."""
    stream.create()
    first = stream.produce(body, "p", 0, 0, stream_closed="true")
    assert first.status == (200 if body else 204)
    assert (first.headers["producer-epoch"], first.headers["producer-seq"]) == ("0", "0")
    again = stream.produce(body, "p", 0, 0, stream_closed="true")
    assert again.status == 204
    assert again.headers["stream-closed"] == "true"
    assert again.next_offset == first.next_offset
    assert stream.read() == body


@pytest.mark.parametrize("claim", [("p", 0, 1), ("p", 1, 0), ("q", 0, 0)])
def test_any_other_producer_request_on_a_closed_stream_is_409(
    stream: Stream, claim: tuple[str, int, int]
) -> None:
    """5.2.1: "Otherwise, return 409 Conflict with Stream-Closed: true (stream is closed, no further appends
    allowed)"."""
    stream.create()
    stream.produce(b"the end", "p", 0, 0, stream_closed="true")
    for value in ("false", "true"):
        answer = stream.produce(b"more", *claim, stream_closed=value)
        assert answer.status == 409
        assert answer.headers["stream-closed"] == "true"
    assert stream.read() == b"the end"


def test_producers_of_one_stream_do_not_know_each_other(stream: Stream) -> None:
    """5.2.1: state is kept per (stream, producerId)."""
    stream.create()
    assert [stream.produce(b"x", id, 0, 0).status for id in ("p", "q", "\xe9")] == [200, 200, 200]
    assert stream.read() == b"xxx"
