"""Durable appends: small bodies to many streams over many connections, each answered once it is safe."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.outcome import Goal, Outcome, Round
from benchmarks.rounds import Plan, take_turns
from benchmarks.streams import OCTETS, PREFIX, Client
from benchmarks.targets import REFERENCE_FILE, REFERENCE_MEMORY, Server, running
from benchmarks.tools import ensure_wrk
from benchmarks.wrk import Load, drive

TITLE = "Durable appends"
STREAMS = 500
BODY_BYTES = 256
CONNECTIONS = 256
LOAD = Load("append.lua", [f"{PREFIX}append-", str(STREAMS), str(BODY_BYTES)], CONNECTIONS)
GOALS = (Goal(20_000), Goal(2.5, REFERENCE_MEMORY.key), Goal(8, REFERENCE_FILE.key))


def measure(plan: Plan) -> list[Outcome]:
    ensure_wrk()
    with running(plan.targets, plan.data_root / "appends") as servers:
        keepers = [server for server in servers if server.target.keeps_streams]
        for server in keepers:
            _create_streams(server)
        acknowledged = {server.key: 0 for server in servers}

        def one_round(server: Server) -> Round:
            acknowledged[server.key] += drive(server, LOAD, plan.warmup_seconds).succeeded
            busy = server.cpu_seconds()
            summary = drive(server, LOAD, plan.seconds)
            busy = server.cpu_seconds() - busy
            acknowledged[server.key] += summary.succeeded
            details = {
                "p50_ms": summary.p50_ms,
                "p99_ms": summary.p99_ms,
                "server_cpu_us_per_append": 1e6 * busy / max(1, summary.succeeded),
            }
            return Round(summary.succeeded / summary.seconds, details, summary.faults())

        rounds = take_turns(plan, TITLE, servers, one_round)
        for server in keepers:
            plan.tell(f"{TITLE}: counting what {server.target.label} kept")
            rounds[server.key][-1] = _check_kept(server, acknowledged[server.key], rounds[server.key][-1])
    return [Outcome("appends", TITLE, "per second", True, rounds, GOALS)]


def _create_streams(server: Server) -> None:
    client = Client(server.port)
    for number in range(STREAMS):
        client.create(f"append-{number}", OCTETS)
    client.close()


def _check_kept(server: Server, acknowledged: int, last: Round) -> Round:
    """An append that was acknowledged and cannot be read back makes the figure worthless: say so."""
    client = Client(server.port)
    kept_bytes = sum(len(chunk.body) for n in range(STREAMS) for chunk in client.chunks(f"append-{n}"))
    client.close()
    missing = acknowledged - kept_bytes // BODY_BYTES
    if missing <= 0:  # requests cut off at a round's end may be kept without having been counted
        return last
    lost = f"{missing} of {acknowledged} acknowledged appends are missing"
    return replace(last, faults=[*last.faults, lost])
