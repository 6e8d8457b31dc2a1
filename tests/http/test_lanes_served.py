"""Lanes on real sockets and disks: leaving, stopping, failing; and servers that must not have any."""

import json
import os
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.gate import GatedServer
from tests.harness.wire import Wire
from tests.operations.servers import AS_SERVICE, SERVICE, OperatedServer

PATH = "/v1/stream/s"
TEXT = {"Content-Type": "text/plain"}


def create(wire: Wire, headers: dict[str, str] | None = None) -> None:
    """And append until the head of an append is known, and leads into a lane if there is one."""
    assert wire.request("PUT", PATH, {**TEXT, **(headers or {})}).status == 201
    for _ in range(3):
        assert wire.request("POST", PATH, {**TEXT, **(headers or {})}, b"warm").status == 204


def content(port: int, headers: dict[str, str] | None = None) -> bytes:
    with Wire(port) as wire:
        return wire.request("GET", PATH, headers).body


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[GatedServer]:
    with GatedServer(tmp_path / "data") as server:
        yield server


def test_an_append_that_a_stop_finds_in_its_lane_is_stored_and_answered(gated: GatedServer) -> None:
    with Wire(gated.port) as wire, Wire(gated.port) as refused:
        create(wire)
        gated.hold()
        wire.ask("POST", PATH, TEXT, b"last")
        refused.ask("POST", "/v1/stream/missing", TEXT, b"last")
        assert refused.answer().status == 404
        gated.wait_until_held()
        os.kill(gated.pid, signal.SIGTERM)
        gated.wait_for(lambda: "stopping" in gated.output)
        assert refused.rest() == b"", "whoever waits for nothing is let go at once"
        gated.release()
        answer = wire.answer("POST")
        assert (answer.status, answer.headers["connection"]) == (204, "close")
        assert answer.next_offset == f"{16:016d}"
        assert wire.rest() == b""
    gated.restart()
    assert content(gated.port) == b"warmwarmwarmlast"


@pytest.mark.parametrize("how", ["closes", "resets"])
def test_a_peer_that_leaves_before_its_answer_harms_nobody(gated: GatedServer, how: str) -> None:
    with Wire(gated.port) as leaving, Wire(gated.port) as staying:
        create(leaving)
        gated.hold()
        leaving.ask("POST", PATH, TEXT, b"gone")
        gated.wait_until_held()
        if how == "resets":
            leaving._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        leaving.close()
        assert staying.request("HEAD", PATH).status == 200, "by now the server has seen it go"
        staying.ask("POST", PATH, TEXT, b"here")
        gated.release()
        assert staying.answer("POST").next_offset == f"{20:016d}"
    assert content(gated.port) == b"warmwarmwarmgonehere"
    assert "Traceback" not in gated.output


def test_a_peer_that_has_said_all_is_still_answered(gated: GatedServer) -> None:
    with Wire(gated.port) as wire:
        create(wire)
        gated.hold()
        wire.ask("POST", PATH, TEXT, b"last")
        wire.end()
        gated.wait_until_held()
        with Wire(gated.port) as other:
            assert other.request("HEAD", PATH).status == 200, "by now the server has seen the end"
        gated.release()
        assert wire.answer("POST").next_offset == f"{16:016d}"
        assert wire.rest() == b""
    assert content(gated.port) == b"warmwarmwarmlast"


def test_a_disk_that_fails_is_told_to_every_append(gated: GatedServer) -> None:
    with Wire(gated.port) as wire:
        create(wire)
        gated.fail()
        for _ in range(3):
            answer = wire.request("POST", PATH, TEXT, b"lost")
            assert (answer.status, answer.error["code"]) == (503, "NOT_STORED")
        assert content(gated.port) == b"warmwarmwarm"
    gated.kill()
    gated.start()
    assert content(gated.port) in (b"warmwarmwarm", b"warmwarmwarmlost"), "nobody was promised anything"


# Servers that look at every request


def test_every_repeat_must_say_who_it_is(tmp_path: Path) -> None:
    with OperatedServer(tmp_path, env={"PERENNIAL_AUTH_TOKENS": SERVICE}) as server:
        with Wire(server.port) as wire:
            create(wire, AS_SERVICE)
            for stranger in ({}, {"Authorization": "Bearer wrong"}):
                for _ in range(4):
                    assert wire.request("POST", PATH, {**TEXT, **stranger}, b"evil").status == 401
            assert wire.request("POST", PATH, {**TEXT, **AS_SERVICE}, b"good").status == 204
        assert content(server.port, AS_SERVICE) == b"warmwarmwarmgood"


def test_a_token_taken_away_is_no_good_for_the_next_repeat(tmp_path: Path) -> None:
    config = 'auth_tokens = ["%s", "another"]\n'
    with OperatedServer(tmp_path, config % SERVICE) as server, Wire(server.port) as wire:
        create(wire, AS_SERVICE)
        server.configure(config % "new")
        server.hang_up("reloaded")
        assert wire.request("POST", PATH, {**TEXT, **AS_SERVICE}, b"late").status == 401


def logged(server: OperatedServer) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in server.log if line.startswith('{"time":')]
    return [line for line in found if line["method"] == "POST"]


def test_every_repeat_is_logged_with_the_address_behind_a_proxy(tmp_path: Path) -> None:
    config = 'access_log = true\ntrusted_proxies = ["127.0.0.0/8"]\n'
    forwarded = {"X-Forwarded-For": "203.0.113.7"}
    with OperatedServer(tmp_path, config) as server:
        with Wire(server.port) as wire:
            create(wire, forwarded)
            for _ in range(5):
                assert wire.request("POST", PATH, {**TEXT, **forwarded}, b"more").status == 204
        server.wait_for(lambda: len(logged(server)) >= 8)
        lines = logged(server)
    assert [(line["client"], line["bytes_in"], line["status"]) for line in lines] == [
        ("203.0.113.7", 4, 204)
    ] * 8
    assert len({line["id"] for line in lines}) == 8


@pytest.mark.parametrize("limit", ["rate_requests = 6", "rate_bytes = 20"])
def test_every_repeat_is_counted_against_the_rate(tmp_path: Path, limit: str) -> None:
    with OperatedServer(tmp_path, limit) as server, Wire(server.port) as wire:
        create(wire)
        answers = [wire.request("POST", PATH, TEXT, b"more").status for _ in range(30)]
        assert 429 in answers
        assert set(answers) <= {204, 429}
