"""Base protocol, 4 and 4.1: what a stream is, and how it ends."""

from pathlib import Path

import pytest

from tests.harness.server import ServerProcess
from tests.spec.streams import TEXT, Stream


@pytest.mark.parametrize("value", ["true", "TRUE", "True", "tRuE"])
def test_closed_is_true_in_any_letter_case(stream: Stream, value: str) -> None:
    """4.1: "Servers MUST treat the header as present only when its value is exactly true
    (case-insensitive)"."""
    stream.create()
    answer = stream.post(b"", None, stream_closed=value)
    assert answer.status == 204
    assert answer.headers["stream-closed"] == "true"


@pytest.mark.parametrize("value", ["false", "yes", "1", "", "truee", "true, true"])
def test_any_other_value_of_closed_is_as_if_absent(stream: Stream, value: str) -> None:
    """4.1: "Other values such as false, yes, 1, or empty string MUST be treated as if the header were
    absent"."""
    assert "stream-closed" not in stream.put(stream_closed=value).headers
    stream.append(b"data", stream_closed=value)
    assert "stream-closed" not in stream.head().headers
    assert stream.post(b"", stream_closed=value).status == 400, "an empty body that closes nothing"


@pytest.mark.parametrize("value", ["false", "yes", "1", ""])
def test_another_value_of_closed_is_no_error(stream: Stream, value: str) -> None:
    """4.1: "Servers SHOULD NOT return error responses for non-true values; they simply ignore the header"."""
    assert stream.put(stream_closed=value).status == 201
    assert stream.put(stream_closed=value).status == 200
    stream.content_type = TEXT
    assert stream.post(b"data", stream_closed=value).status == 204


def test_a_closed_stream_is_never_open_again(stream: Stream) -> None:
    """4.1: closure is monotonic: once closed, a stream cannot be reopened."""
    stream.create(b"data")
    stream.close()
    assert stream.post(b"more").status == 409
    assert stream.put().status == 409
    assert stream.put(stream_closed="false").status == 409
    assert stream.head().headers["stream-closed"] == "true"


def test_a_final_append_and_the_close_are_one_step(stream: Stream) -> None:
    """4.1: atomic with final append: nobody sees the one without the other."""
    stream.create()
    with stream.sse("-1") as events:
        events.until_up_to_date()
        stream.append(b"the end", stream_closed="true")
        rest = events.rest()
    assert [event.kind for event in rest] == ["data", "control"]
    assert rest[0].data == "the end"
    assert rest[1].control["streamClosed"] is True


def test_data_closure_and_producers_survive_a_restart(tmp_path: Path) -> None:
    """4: "Once written and acknowledged, bytes persist"; 4.1: "the closed state is persisted and survives
    server restarts"; 5.2.1: persistent stores retain producer state as long as stream data exists."""
    with ServerProcess(tmp_path / "data") as server:
        stream = Stream(server.port, "a")
        stream.create(b"one ")
        stream.produce(b"two ", "p", 0, 0)
        closed = stream.produce(b"three", "p", 0, 1, stream_closed="true")
        assert closed.status == 200
        server.kill()
        server.start()
        assert stream.read() == b"one two three"
        assert stream.head().headers["stream-closed"] == "true"
        again = stream.produce(b"three", "p", 0, 1, stream_closed="true")
        assert again.status == 204
        assert again.next_offset == closed.next_offset
        assert stream.read() == b"one two three"


def test_bytes_at_an_offset_never_change(stream: Stream) -> None:
    """4: "Immutability by Position: Bytes at a given offset never change; new data is only appended"."""
    stream.create()
    offsets = [stream.append(b"part %d," % number) for number in range(5)]
    before = [stream.get(offset).body for offset in offsets]
    stream.append(b"more")
    stream.close()
    for offset, body in zip(offsets, before, strict=True):
        assert stream.get(offset).body == body + b"more"


def test_a_deleted_name_may_be_used_again(stream: Stream) -> None:
    """4: "If a stream is deleted a new stream SHOULD NOT be created at the same URL": today's protocol allows
    it, and so do we; what matters is that nothing of the old one is left."""
    stream.create(b"old")
    stream.produce(b"old", "p", 7, 0, stream_seq="z")
    assert stream.delete().status == 204
    assert stream.put(b"new", "application/octet-stream").status == 201
    stream.content_type = "application/octet-stream"
    assert stream.read() == b"new"
    assert stream.produce(b"er", "p", 0, 0, stream_seq="a").status == 200
