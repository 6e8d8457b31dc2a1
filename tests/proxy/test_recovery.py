"""Stops and crashes: exactly one terminal frame per response, always (section 5.3)."""

import signal
import threading

from perennial.protocol.frames import FrameType
from tests.proxy.harness import Rig, stream_id
from tests.upstream import HANG, Step


def test_a_kill_leaves_exactly_one_terminal_frame(own: Rig) -> None:
    """5.3: there MUST be exactly one terminal frame per response id, after a crash too."""
    url = own.connect("crash").headers["location"]
    own.append(url, own.script([b"whole"]))
    own.ended(url, 1)
    for number in range(2, 12):
        own.append(url, own.script([b"part %d" % number, HANG]))
        own.until_data(url, b"part %d" % number, number)
    alone = own.create(own.script([b"alone", HANG])).headers["location"]
    own.until_data(alone, b"alone")

    for _ in range(3):  # a crash while recovering from a crash changes nothing
        own.server.kill()
        own.server.start()

    assert own.kept(url, 1).ending is FrameType.COMPLETE
    for number in range(2, 12):
        kept = own.kept(url, number)
        assert kept.body == b"part %d" % number
        assert kept.failure.code == "UPSTREAM_ERROR"
    assert own.kept(alone).ending is FrameType.ERROR


def test_sessions_and_ids_go_on_after_a_crash(own: Rig) -> None:
    """5.3: ids are sequential, 4.4: the namespace MUST be consistent, 4.5: renewable MUST stay true."""
    short = {"Stream-Signed-URL-TTL": "0"}
    url = own.connect("goes-on", headers=short).headers["location"]
    own.append(url, own.script([b"one", HANG]))
    own.append(url, own.script([b"two"]))
    own.server.kill()
    own.server.start()
    assert own.read(url).json()["error"]["renewable"] is True
    again = own.connect("goes-on")
    assert again.status_code == 200
    assert stream_id(again.headers["location"]) == stream_id(url)
    answer = own.append(again.headers["location"], own.script([b"three"]))
    assert answer.headers["stream-response-id"] == "3"
    assert own.ended(again.headers["location"], 3).body == b"three"


def test_a_stop_flushes_and_writes_an_error_frame(own: Rig) -> None:
    """9.2: an Error frame when piping ends otherwise: here, because the server is stopped."""
    gate = threading.Event()
    url = own.create(own.script([b"kept", gate, b"lost"])).headers["location"]
    own.until_data(url, b"kept")
    own.server.restart()
    kept = own.kept(url)
    assert kept.body == b"kept"
    assert "stopped" in kept.failure.message
    gate.set()


def test_kills_at_any_moment_leave_whole_frames_and_one_end(own: Rig) -> None:
    """5.3: at whatever moment the server dies, the stream holds whole frames and, later, one end each."""
    for pause in (0.0, 0.01, 0.05, 0.12):
        trickle: list[Step] = [0.002, b"y" * 300]
        flood = own.script([b"x" * 1000, *trickle * 200, HANG])
        url = own.create(flood).headers["location"]
        threading.Event().wait(pause)
        own.server.kill()
        own.server.start()
        kept = own.kept(url)  # which checks that all bytes are whole frames
        assert kept.ending is FrameType.ERROR
        expected = b"x" * 1000 + b"y" * 300 * 200
        assert expected.startswith(kept.body)


def test_a_waiting_create_is_told_that_the_server_stops(own: Rig) -> None:
    answers = []
    path = "/allowed/never"
    url = own.script([], path=path, before_headers=[HANG])
    thread = threading.Thread(target=lambda: answers.append(own.post(url)))
    thread.start()
    own.upstream.wait_for(path)
    own.server._end(signal.SIGTERM)
    thread.join(10)
    assert answers[0].status_code == 503
    own.server.start()
