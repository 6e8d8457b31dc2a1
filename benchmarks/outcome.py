"""Numbers, goals, and whether the goals were met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.targets import PERENNIAL, TARGETS


@dataclass(frozen=True)
class Round:
    """One measurement of one server: the figure, what stands beside it, and what went wrong."""

    figure: float
    details: Mapping[str, float] = field(default_factory=dict)
    faults: Sequence[str] = ()


@dataclass(frozen=True)
class Goal:
    """A limit on Perennial's figure, or on its ratio to another server's (`against`)."""

    limit: float
    against: str | None = None


@dataclass(frozen=True)
class Verdict:
    """What a goal came to; `measured` is None when one of the servers was left out of the run."""

    goal: Goal
    wording: str
    measured: float | None
    met: bool | None


@dataclass(frozen=True)
class Outcome:
    """A scenario after its rounds. Round n of every server happened next to round n of the others."""

    key: str
    title: str
    unit: str
    higher_is_better: bool
    rounds: Mapping[str, Sequence[Round]]
    goals: Sequence[Goal] = ()

    def figure(self, target: str) -> float | None:
        rounds = self.rounds.get(target)
        return median(each.figure for each in rounds) if rounds else None

    def ratio(self, target: str) -> float | None:
        """Ours against another's: the median of the rounds' own ratios, so that drift cancels out."""
        ours, theirs = self.rounds.get(PERENNIAL.key), self.rounds.get(target)
        if not ours or not theirs:
            return None
        return median(a.figure / b.figure for a, b in zip(ours, theirs, strict=True) if b.figure)

    def details(self, target: str) -> dict[str, float]:
        """The median of each detail over the rounds."""
        rounds = self.rounds.get(target) or []
        names = rounds[0].details if rounds else {}
        return {name: median(each.details[name] for each in rounds) for name in names}

    def verdicts(self) -> list[Verdict]:
        return [self._judge(goal) for goal in self.goals]

    def faults(self) -> list[str]:
        return [
            f"{TARGETS[target].label}, round {number}: {fault}"
            for target, rounds in self.rounds.items()
            for number, each in enumerate(rounds, start=1)
            for fault in each.faults
        ]

    def our_faults(self) -> list[str]:
        return [fault for each in self.rounds.get(PERENNIAL.key, ()) for fault in each.faults]

    def _judge(self, goal: Goal) -> Verdict:
        measured = self.figure(PERENNIAL.key) if goal.against is None else self.ratio(goal.against)
        met = None if measured is None else self._meets(measured, goal)
        return Verdict(goal, self._word(goal), measured, met)

    def _meets(self, measured: float, goal: Goal) -> bool:
        return measured >= goal.limit if self.higher_is_better else measured <= goal.limit

    def _word(self, goal: Goal) -> str:
        bound = "at least" if self.higher_is_better else "at most"
        if goal.against is None:
            return f"{bound} {format_figure(goal.limit)}"
        return f"{bound} {goal.limit:g}x {TARGETS[goal.against].short}"


def format_figure(figure: float) -> str:
    """About three significant digits, thousands separated."""
    digits = 0 if figure >= 100 else 1 if figure >= 10 else 2
    return f"{figure:,.{digits}f}"
