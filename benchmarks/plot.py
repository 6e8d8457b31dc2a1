"""The picture: one small bar chart per scenario, every axis from zero, every round visible as a dot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from benchmarks.outcome import Goal, Outcome, format_figure
from benchmarks.targets import BARE, PERENNIAL, REFERENCE_FILE, REFERENCE_MEMORY, TARGETS

COLOURS = {
    PERENNIAL.key: "#2a7f62",
    REFERENCE_MEMORY.key: "#8a8d91",
    REFERENCE_FILE.key: "#c3c5c8",
    BARE.key: "#e4d8b4",
}
GOAL_COLOUR = "#b5482f"
COLUMNS = 3
PANEL_INCHES = (4.2, 3.6)


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    columns = min(COLUMNS, len(outcomes))
    lines = -(-len(outcomes) // columns)
    size = (PANEL_INCHES[0] * columns, PANEL_INCHES[1] * lines)
    figure, grid = pyplot.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
    panels = list(grid.flat)
    for outcome, axes in zip(outcomes, panels, strict=False):
        _draw_panel(axes, outcome)
    for unused in panels[len(outcomes) :]:
        unused.set_visible(False)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _draw_panel(axes: Axes, outcome: Outcome) -> None:
    measured = [key for key in TARGETS if outcome.rounds.get(key)]
    for place, key in enumerate(measured):
        rounds = [each.figure for each in outcome.rounds[key]]
        axes.bar(place, outcome.figure(key) or 0.0, width=0.6, color=COLOURS[key])
        axes.plot([place] * len(rounds), rounds, "o", color="black", markersize=2.5, alpha=0.6)
    for goal in outcome.goals:
        _draw_goal(axes, outcome, goal)
    axes.set_xticks(range(len(measured)), [_caption(outcome, key) for key in measured])
    axes.set_xlim(-0.6, max(len(measured), 2) - 0.4)
    axes.set_ylim(0, axes.get_ylim()[1])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_title(outcome.title, fontsize=10)
    axes.set_ylabel(f"{outcome.unit} ({'more' if outcome.higher_is_better else 'less'} is better)")
    axes.spines[["top", "right"]].set_visible(False)


def _caption(outcome: Outcome, key: str) -> str:
    lines = [format_figure(outcome.figure(key) or 0.0), *TARGETS[key].label.split(", ")]
    return "\n".join(lines)


def _draw_goal(axes: Axes, outcome: Outcome, goal: Goal) -> None:
    base = 1.0 if goal.against is None else outcome.figure(goal.against)
    if base is None:
        return
    level = goal.limit * base
    against = "" if goal.against is None else f"\n{goal.limit:g}x {TARGETS[goal.against].short}"
    axes.axhline(level, color=GOAL_COLOUR, linestyle="--", linewidth=1)
    axes.annotate(
        f"goal{against}",
        (1, level),
        (3, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        fontsize=7,
        color=GOAL_COLOUR,
    )
