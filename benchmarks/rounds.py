"""Taking turns: A B C, then B C A, then C A B, each server alone on the machine while it is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.outcome import Round
from benchmarks.targets import Server, Target, alone


@dataclass(frozen=True)
class Plan:
    """How a run is carried out, whatever is measured."""

    rounds: int
    seconds: float
    warmup_seconds: float
    targets: Sequence[Target]
    data_root: Path
    tell: Callable[[str], None]


def take_turns(
    plan: Plan, title: str, servers: Sequence[Server], measure: Callable[[Server], Round]
) -> dict[str, list[Round]]:
    """Measure every server once per round, moving the first place along by one each time."""
    rounds: dict[str, list[Round]] = {server.key: [] for server in servers}
    for number in range(plan.rounds):
        first = number % len(servers)
        for server in [*servers[first:], *servers[:first]]:
            plan.tell(f"{title}: round {number + 1} of {plan.rounds}, {server.target.label}")
            with alone(server, servers):
                rounds[server.key].append(measure(server))
    return rounds
