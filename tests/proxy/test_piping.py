"""From the upstream's bytes to frames: batching, silence, breaks and floods (sections 5.2, 9)."""

import threading
import time
import uuid

import httpx
import pytest

from perennial.protocol.frames import FrameParser, FrameType
from tests.proxy.harness import Rig, error_code
from tests.upstream import CUT, HANG, RESET, Step


def test_small_chunks_are_batched(rig: Rig) -> None:
    """5.2, 9.2: implementations SHOULD batch small chunks, flushing on 4 KB or 50 ms."""
    pieces = [bytes([65 + number % 26]) for number in range(400)]
    kept = rig.ended(rig.create(rig.script(pieces)).headers["location"])
    assert kept.body == b"".join(pieces)
    assert len(kept.data) < 40


def test_a_trickle_is_not_held_back(rig: Rig) -> None:
    """9.2: a time threshold of 50 ms: what has arrived can be read soon, however little it is."""
    gates = [threading.Event() for _ in range(5)]
    steps = [step for gate in gates for step in (gate, b".")]
    url = rig.create(rig.script(steps)).headers["location"]
    waits = []
    for number, gate in enumerate(gates, start=1):
        began = time.monotonic()
        gate.set()
        rig.until_data(url, b"." * number)
        waits.append(time.monotonic() - began)
    assert sorted(waits)[2] < 0.1


def test_large_chunks_go_through_whole(rig: Rig) -> None:
    """9.2: a size threshold of 4 KB: a flood is not held back by the timer."""
    chunk = bytes(range(256)) * 4096
    began = time.monotonic()
    url = rig.create(rig.script([chunk] * 16)).headers["location"]
    body = b"".join(_all_data(rig, url))
    assert body == chunk * 16
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("ending", [CUT, RESET])
@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_a_break_keeps_every_byte_and_writes_an_error(rig: Rig, ending: object, framing: str) -> None:
    """9.2, 5.2: an Error frame for a network error, with a code of section 12; what arrived is kept."""
    body = [b"first ", 0.1, b"second ", 0.1, b"third", 0.2 if ending is RESET else 0.0, ending]
    url = rig.create(rig.script(body, framing=framing, length=100)).headers["location"]  # type: ignore[arg-type]
    kept = rig.ended(url)
    assert kept.body == b"first second third"
    assert kept.failure.code == "UPSTREAM_ERROR"


def test_a_break_right_behind_the_bytes_keeps_them(rig: Rig) -> None:
    """9.3: every byte that arrived before a cut is kept, though bytes and cut may arrive as one."""
    for size in (1, 5000, 100_000, 1_000_000):
        url = rig.create(rig.script([b"x" * size, CUT], framing="length", length=10**7)).headers["location"]
        kept = rig.ended(url)
        assert len(kept.body) == size
        assert kept.ending is FrameType.ERROR


def test_silence_of_the_body_ends_in_an_error(hasty: Rig) -> None:
    """9.1: if body inactivity is exceeded, the proxy SHOULD write an Error frame and stop piping."""
    path = f"/allowed/{uuid.uuid4().hex}"
    url = hasty.create(hasty.script([b"then nothing", HANG], path=path)).headers["location"]
    kept = hasty.ended(url)
    assert kept.body == b"then nothing"
    assert kept.failure.code == "UPSTREAM_TIMEOUT"
    assert "0.3 seconds" in kept.failure.message
    assert hasty.upstream.wait_for(path).peer_gone.wait(10)


def test_a_slow_but_steady_body_is_no_silence(hasty: Rig) -> None:
    """9.1: the time is counted between consecutive chunks, not over the whole."""
    tick: list[Step] = [0.15, b"."]
    kept = hasty.ended(hasty.create(hasty.script([b".", *tick * 5])).headers["location"])
    assert kept.ending is FrameType.COMPLETE
    assert kept.body == b"......"


def test_headers_that_do_not_come_are_a_504(hasty: Rig) -> None:
    """9.1: if header resolution is exceeded, return 504 with UPSTREAM_TIMEOUT."""
    path = f"/allowed/{uuid.uuid4().hex}"
    answer = hasty.post(hasty.script([b"x"], path=path, before_headers=[HANG]))
    assert (answer.status_code, error_code(answer)) == (504, "UPSTREAM_TIMEOUT")
    assert hasty.upstream.wait_for(path).peer_gone.wait(10)


def test_an_absent_reader_does_not_slow_the_upstream(rig: Rig) -> None:
    """9.2: piping runs in the background; nobody needs to read for it to go on."""
    path = f"/allowed/{uuid.uuid4().hex}"
    url = rig.create(rig.script([b"x" * 65536] * 64, path=path)).headers["location"]
    deadline = time.monotonic() + 20
    while rig.upstream.wait_for(path).sent < 64 * 65536:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert sum(map(len, _all_data(rig, url))) == 64 * 65536


def test_a_slow_reader_does_not_slow_the_upstream(rig: Rig) -> None:
    path = f"/allowed/{uuid.uuid4().hex}"
    gate = threading.Event()
    url = rig.create(rig.script([b"x", gate, *[b"x" * 65536] * 64], path=path)).headers["location"]
    with httpx.stream("GET", f"{url}&offset=-1&live=sse", timeout=20) as stalled:
        next(stalled.iter_raw(1))
        gate.set()
        deadline = time.monotonic() + 20
        while rig.upstream.wait_for(path).sent < 64 * 65536:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def _all_data(rig: Rig, url: str) -> list[bytes]:
    parser, pieces = FrameParser(), list[bytes]()
    while True:
        answer = rig.read(url, offset=f"{parser.position:016d}", live="long-poll")
        for frame in parser.feed(answer.content):
            if frame.type is FrameType.DATA:
                pieces.append(frame.payload)
            elif frame.type is not FrameType.START:
                assert frame.type is FrameType.COMPLETE
                return pieces
