"""The official Python client, synchronous: every way to write and to read."""

import threading
from queue import SimpleQueue
from typing import Any

import pytest
from durable_streams import (
    DurableStream,
    DurableStreamError,
    SeqConflictError,
    StreamExistsError,
    StreamNotFoundError,
    stream,
)

PATIENCE_SECONDS = 20.0


def test_text_is_read_as_it_was_written(url: str) -> None:
    with DurableStream.create(url, content_type="text/plain", body="first, ") as handle:
        handle.append("second, ")
        result = handle.append("third: 🌊")
        with handle.stream(live=False) as response:
            assert response.read_text() == "first, second, third: 🌊"
            assert response.up_to_date
            assert response.offset == result.next_offset
        with handle.stream(offset=result.next_offset, live=False) as response:
            assert response.read_text() == ""


def test_bytes_are_read_as_they_were_written(url: str) -> None:
    content = bytes(range(256)) * 20_000  # several chunks of a read
    with DurableStream.create(url, content_type="application/octet-stream") as handle:
        for start in range(0, len(content), 1_000_000):
            handle.append(content[start : start + 1_000_000])
        with handle.stream() as response:
            assert response.read_bytes() == content
        with handle.stream(live=False) as response:
            assert b"".join(response) == content


def test_json_keeps_its_messages_apart(url: str) -> None:
    messages: list[Any] = [{"a": 1}, [1, 2], "text", 3.5, None, True, {"nested": [{}]}]
    with DurableStream.create(url, content_type="application/json") as handle:
        for message in messages:
            handle.append(message)
        with handle.stream() as response:
            assert response.read_json() == messages
        with handle.stream(live=False) as response:
            assert list(response.iter_json()) == messages


def test_appends_of_many_threads_are_batched_and_all_arrive(url: str) -> None:
    with DurableStream.create(url, content_type="application/json") as handle:
        threads = [threading.Thread(target=handle.append, args=(number,)) for number in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        with handle.stream() as response:
            assert sorted(response.read_json()) == list(range(50))


def test_a_stream_is_created_looked_at_and_deleted(url: str) -> None:
    with DurableStream.create(url, content_type="text/plain", ttl_seconds=3600) as handle:
        handle.create_stream(content_type="text/plain", ttl_seconds=3600)  # the same again is fine
        with pytest.raises(StreamExistsError):
            handle.create_stream(content_type="application/json", ttl_seconds=3600)
        handle.append("12345")
        found = DurableStream.head_static(url)
        assert (found.content_type, found.offset) == ("text/plain", "0000000000000005")
        with DurableStream.connect(url) as other:
            assert other.content_type == "text/plain"
            other.delete()
        with pytest.raises(StreamNotFoundError):
            handle.head()
        with pytest.raises(StreamNotFoundError):
            handle.append("late")
        with pytest.raises(StreamNotFoundError):
            stream(url)


def test_sequence_numbers_keep_writers_in_order(url: str) -> None:
    with DurableStream.create(url, content_type="text/plain", batching=False) as handle:
        handle.append("a", seq="001")
        handle.append("b", seq="002")
        with pytest.raises(SeqConflictError):
            handle.append("stale", seq="002")
        with handle.stream() as response:
            assert response.read_text() == "ab"


def test_a_refusal_carries_our_reason(url: str) -> None:
    with DurableStream.create(url, content_type="application/json") as handle:
        with pytest.raises(DurableStreamError) as raised:
            handle.append("x", content_type="nonsense")
        assert raised.value.status == 400
        assert "malformed Content-Type" in raised.value.details
        with pytest.raises(DurableStreamError) as raised:
            handle.stream(offset="nonsense")
        assert raised.value.status == 400
        assert "malformed offset" in raised.value.details


@pytest.mark.parametrize("live", ["auto", "long-poll", "sse"])
def test_a_live_read_gets_what_is_there_and_what_comes(url: str, live: Any) -> None:
    with DurableStream.create(url, content_type="application/json") as handle:
        end = handle.append({"number": 0}).next_offset
        with handle.stream(offset="-1", live=live) as response:
            events = response.iter_events(mode="json")
            for number in range(5):
                event = next(events)
                assert event.data == [{"number": number}]
                assert (event.next_offset, event.up_to_date) == (end, True)
                end = handle.append({"number": number + 1}).next_offset


def test_text_with_every_kind_of_line_break_survives_sse(url: str) -> None:
    text = "one\n two\r\nthree\rfour\n\n data: five\nevent: control\ndata:{}\n\n  🌊\n"
    with DurableStream.create(url, content_type="text/plain", body=text) as handle:
        with handle.stream(offset="-1", live="sse") as response:
            received = next(iter(response.iter_text()))
        assert received == text.replace("\r\n", "\n").replace("\r", "\n")  # what SSE can carry


def test_a_closed_stream_ends_an_sse_read(url: str) -> None:
    with DurableStream.create(url, content_type="text/plain") as handle:
        received: SimpleQueue[str | None] = SimpleQueue()

        def tail() -> None:
            with stream(url, offset="-1", live="sse") as response:
                for text in response.iter_text():
                    received.put(text)
            received.put(None)

        reader = threading.Thread(target=tail)
        reader.start()
        handle.append("one")
        assert received.get(timeout=PATIENCE_SECONDS) == "one"
        with DurableStream(url, content_type="text/plain", headers={"Stream-Closed": "true"}) as closer:
            closer.append("last words")
        assert received.get(timeout=PATIENCE_SECONDS) == "last words"
        assert received.get(timeout=PATIENCE_SECONDS) is None
        reader.join(PATIENCE_SECONDS)


def test_the_end_of_a_closed_stream_is_marked_for_other_readers(url: str) -> None:
    """This client goes on polling a closed stream; the header tells an application when to stop."""
    with DurableStream.create(url, content_type="text/plain", body="all") as handle:
        with DurableStream(url, content_type="text/plain", headers={"Stream-Closed": "true"}) as closer:
            closer.append(" there is")
        for live in (False, "long-poll"):
            with handle.stream(offset="-1", live=live) as response:
                assert next(iter(response)) == b"all there is"
                assert response.headers["stream-closed"] == "true"
        with pytest.raises(SeqConflictError):  # its name for any 409
            handle.append("late")
