"""Catch-up reads: how fast stored bytes leave the server, in answers of 1 MiB.

The reference has no chunk limit: a read goes to the tail, however far away. So the comparison uses streams
that hold exactly 1 MiB, which both sides answer whole. How Perennial serves a long stream, chunk by chunk, is
measured beside it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.outcome import Goal, Outcome, Round
from benchmarks.rounds import Plan, take_turns
from benchmarks.streams import OCTETS, Chunk, Client
from benchmarks.targets import PERENNIAL, REFERENCE_MEMORY, Server, running
from benchmarks.tools import ensure_wrk
from benchmarks.wrk import Load, drive

MIB = 1024 * 1024
CONNECTIONS = 16


@dataclass(frozen=True)
class Layout:
    """Streams to be read: how many, how large, and the size of the appends that filled them."""

    key: str
    title: str
    streams: int
    stream_bytes: int
    append_bytes: int
    goals: Sequence[Goal] = ()
    only: str | None = None


WHOLE = Layout(
    key="reads-whole",
    title="Reads of 1 MiB streams",
    streams=16,
    stream_bytes=MIB,
    append_bytes=MIB,
    goals=(Goal(1.0), Goal(1.5, REFERENCE_MEMORY.key)),
)
SMALL_MESSAGES = Layout(
    key="reads-small-messages",
    title="Reads of 1 MiB streams, 4 KiB appends",
    streams=16,
    stream_bytes=MIB,
    append_bytes=4096,
)
CHUNKED = Layout(
    key="reads-chunked",
    title="Reads of a 64 MiB stream by chunks",
    streams=1,
    stream_bytes=64 * MIB,
    append_bytes=MIB,
    goals=(Goal(1.0),),
    only=PERENNIAL.key,
)
LAYOUTS = (WHOLE, SMALL_MESSAGES, CHUNKED)


def measure(plan: Plan) -> list[Outcome]:
    ensure_wrk()
    readable = [target for target in plan.targets if target.keeps_streams]
    with running(readable, plan.data_root / "reads") as servers:
        outcomes = [_measure_layout(plan, layout, servers) for layout in LAYOUTS]
    return [outcome for outcome in outcomes if outcome is not None]


def _measure_layout(plan: Plan, layout: Layout, servers: Sequence[Server]) -> Outcome | None:
    chosen = [server for server in servers if layout.only in (None, server.key)]
    if not chosen:
        return None
    plan.tell(f"{layout.title}: filling")
    prepared = {server.key: _prepare(server, layout, plan.data_root) for server in chosen}

    def one_round(server: Server) -> Round:
        return prepared[server.key](server, plan)

    rounds = take_turns(plan, layout.title, chosen, one_round)
    return Outcome(layout.key, layout.title, "GB/s", True, rounds, layout.goals)


def _prepare(server: Server, layout: Layout, directory: Path) -> Callable[[Server, Plan], Round]:
    """Fill the streams, find the chunks the server cuts them into, and return the measurement over those."""
    names = [f"{layout.key}-{number}" for number in range(layout.streams)]
    with ThreadPoolExecutor(layout.streams) as pool:
        list(pool.map(lambda name: _fill(server, name, layout), names))
    chunks = [chunk for name in names for chunk in _read(server, name)]
    if sum(len(chunk.body) for chunk in chunks) != layout.streams * layout.stream_bytes:
        raise BenchmarkError(f"{layout.title}: {server.target.label} does not return what was appended.")
    if layout.stream_bytes == MIB and len(chunks) != layout.streams:
        raise BenchmarkError(f"{layout.title}: {server.target.label} cut 1 MiB into several answers.")
    listing = directory / f"{layout.key}-{server.key}.paths"
    listing.write_text("".join(f"{chunk.path}\n" for chunk in chunks))
    load = Load("read.lua", [str(listing.resolve())], CONNECTIONS)
    mean_bytes = layout.streams * layout.stream_bytes / len(chunks)
    return lambda server, plan: _round(server, plan, load, mean_bytes)


def _round(server: Server, plan: Plan, load: Load, mean_bytes: float) -> Round:
    drive(server, load, plan.warmup_seconds)
    busy = server.cpu_seconds()
    summary = drive(server, load, plan.seconds)
    busy = server.cpu_seconds() - busy
    details = {
        "p50_ms": summary.p50_ms,
        "p99_ms": summary.p99_ms,
        "chunk_bytes": mean_bytes,
        "server_cpu_us_per_read": 1e6 * busy / max(1, summary.succeeded),
    }
    return Round(summary.succeeded * mean_bytes / summary.seconds / 1e9, details, summary.faults())


def _fill(server: Server, name: str, layout: Layout) -> None:
    client = Client(server.port)
    client.create(name, OCTETS)
    for _ in range(layout.stream_bytes // layout.append_bytes):
        client.append(name, os.urandom(layout.append_bytes), OCTETS)
    client.close()


def _read(server: Server, name: str) -> list[Chunk]:
    client = Client(server.port)
    chunks = [chunk for chunk in client.chunks(name) if chunk.body]
    client.close()
    return chunks
