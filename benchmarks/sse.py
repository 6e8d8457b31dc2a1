"""Live delivery: one writer, a thousand SSE subscribers, and how long events take to reach them."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.outcome import Goal, Outcome, Round
from benchmarks.rounds import Plan, take_turns
from benchmarks.streams import PREFIX, TEXT, Client
from benchmarks.targets import PERENNIAL, REFERENCE_MEMORY, Server, running
from benchmarks.tools import ensure_sse_client, run

TITLE = "SSE delivery, p99"
SUBSCRIBERS = 1000
EVENTS_PER_SECOND = 50
BODY_BYTES = 256
GOALS = (Goal(0.4, REFERENCE_MEMORY.key),)


def measure(plan: Plan) -> list[Outcome]:
    program = ensure_sse_client()
    # The reference's file store reads its log anew for each subscriber and event: about one event per second
    # at a thousand subscribers, which says nothing about live delivery.
    targets = [target for target in plan.targets if target in (PERENNIAL, REFERENCE_MEMORY)]
    if not targets:
        return []
    fresh = count()
    with running(targets, plan.data_root / "sse") as servers:

        def one_round(server: Server) -> Round:
            # A fresh stream each time: the reference slows down as a stream grows.
            return _one_round(server, f"sse-{next(fresh)}", program, plan)

        rounds = take_turns(plan, TITLE, servers, one_round)
    return [Outcome("sse", TITLE, "ms", False, rounds, GOALS)]


def _one_round(server: Server, stream: str, program: Path, plan: Plan) -> Round:
    client = Client(server.port)
    client.create(stream, TEXT)
    client.close()
    load = (SUBSCRIBERS, EVENTS_PER_SECOND, plan.warmup_seconds, plan.seconds, BODY_BYTES)
    command = [str(program), str(server.port), PREFIX + stream, *map(str, load)]
    busy = server.cpu_seconds()
    found = json.loads(run(command))
    busy = server.cpu_seconds() - busy
    details = {
        "p50_ms": found["from_send_ms"]["p50"],
        "p99_ms": found["from_send_ms"]["p99"],
        "max_ms": found["from_send_ms"]["max"],
        "p99_from_schedule_ms": found["from_schedule_ms"]["p99"],
        "events_per_second": found["events_per_second"],
        "deliveries": found["delivered"],
        "server_cpu_us_per_delivery": 1e6 * busy / max(1, found["delivered"]),
    }
    return Round(found["from_send_ms"]["p99"], details, _faults(found))


def _faults(found: dict[str, Any]) -> list[str]:
    kinds = {
        "dropped": "deliveries missing",
        "misordered": "deliveries out of order or repeated",
        "closed_early": "subscriptions ended by the server",
        "append_failures": "appends failed",
    }
    faults = [f"{found[kind]} {words}" for kind, words in kinds.items() if found[kind]]
    if found["events_sent"] < 0.99 * found["events_due"]:
        pace = f"{found['events_per_second']:.0f} of {EVENTS_PER_SECOND} events/s"
        faults.append(f"could not keep the pace: {pace}")
    return faults
