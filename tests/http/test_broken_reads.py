"""A live read that meets lost data ends; those beside it go on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from perennial.store.blocks import Block
from tests.http.served import Served
from tests.http.wire import statuses


def put(name: bytes) -> bytes:
    return (
        b"PUT /v1/stream/%b HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n"
        % name
    )


def post(name: bytes) -> bytes:
    head = (
        b"POST /v1/stream/%b HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\n"
        % name
    )
    return head + b"1234"


def get(name: bytes, live: bytes) -> bytes:
    offset = b"0000000000000000"
    return b"GET /v1/stream/%b?offset=%b&live=%b HTTP/1.1\r\nHost: a\r\n\r\n" % (name, offset, live)


@pytest.mark.parametrize("live", [b"long-poll", b"sse"])
def test_a_live_read_of_lost_data_ends_and_the_others_are_woken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, live: bytes
) -> None:
    with Served(tmp_path / "data") as served:
        writer = served.peer()
        for name in (b"bad", b"good"):
            assert statuses(served.say(writer, put(name))) == [201]
        unlucky, lucky = served.peer(), served.peer()
        begun = served.say(unlucky, get(b"bad", live))
        served.say(lucky, get(b"good", live))
        bad = served.world.visible("bad")
        assert bad is not None
        real = served.world.store.blocks

        def blocks(stream_id: int, start: int, end: int) -> Iterator[Block]:
            return iter(()) if stream_id == bad.id else real(stream_id, start, end)

        monkeypatch.setattr(served.world.store, "blocks", blocks)
        other = served.peer()
        served.do(lambda: writer.send(post(b"bad")))
        assert statuses(served.say(other, post(b"good"))) == [204]
        assert statuses(writer.take()) == [204]
        heard = unlucky.take()
        if live == b"sse":
            assert statuses(begun) == [200]
            assert not unlucky.is_open, "and its client comes back"
        else:
            assert statuses(heard) == [500]
        assert b"1234" not in heard
        assert b"1234" in lucky.take()
        assert "a live read of default/bad failed" in caplog.text
        assert "has lost what was at offset 0" in caplog.text
