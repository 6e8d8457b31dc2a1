"""What a run came to: a table for the terminal, and files under `results/` for everyone else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.outcome import Outcome, Verdict, format_figure
from benchmarks.plot import draw
from benchmarks.targets import BARE, PERENNIAL, REFERENCE_FILE, REFERENCE_MEMORY
from benchmarks.tools import HOME

RESULTS = HOME / "results"
COLUMNS = ("Scenario", "Perennial", "Ref. memory", "Ref. file", "Bare parts", "Goal", "Measured", "Met")
COMPARED = (PERENNIAL, REFERENCE_MEMORY, REFERENCE_FILE, BARE)
READING = (
    "Figures are medians of the rounds; a ratio is the median of the rounds' own ratios, "
    "so it may differ a little from the quotient of two figures."
)


def print_report(console: Console, outcomes: Sequence[Outcome], facts: Mapping[str, str]) -> None:
    table = Table(title="Perennial and the reference server, same machine, same run")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("Scenario", "Goal") else "right")
    for outcome in outcomes:
        for row in _rows(outcome):
            table.add_row(*row)
        table.add_section()
    console.print(table)
    console.print(READING, style="dim")
    for outcome in outcomes:
        for fault in outcome.faults():
            console.print(f"{outcome.title}: {fault}", style="yellow", highlight=False)
    for name, value in facts.items():
        console.print(f"[bold]{name}[/bold]  {value}", highlight=False)


def write_files(outcomes: Sequence[Outcome], facts: Mapping[str, str], directory: Path) -> None:
    """Write `latest.json`, `latest.md` and `latest.png`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "latest.json").write_text(_as_json(outcomes, facts))
    (directory / "latest.md").write_text(_as_markdown(outcomes, facts))
    draw(outcomes, directory / "latest.png")


def _rows(outcome: Outcome) -> list[list[str]]:
    """One row per goal; the figures stand in the first one only."""
    figures = [outcome.figure(target.key) for target in COMPARED]
    title = f"{outcome.title}, {outcome.unit}"
    head = [title, *("-" if figure is None else format_figure(figure) for figure in figures)]
    verdicts = [_verdict_cells(verdict) for verdict in outcome.verdicts()] or [["", "", ""]]
    return [(head if number == 0 else [""] * len(head)) + cells for number, cells in enumerate(verdicts)]


def _verdict_cells(verdict: Verdict) -> list[str]:
    if verdict.measured is None:
        return [verdict.wording, "-", "?"]
    is_ratio = verdict.goal.against is not None
    measured = f"{verdict.measured:.2f}x" if is_ratio else format_figure(verdict.measured)
    return [verdict.wording, measured, "yes" if verdict.met else "NO"]


def _as_json(outcomes: Sequence[Outcome], facts: Mapping[str, str]) -> str:
    scenarios = [
        asdict(outcome)
        | {
            "figures": {target: outcome.figure(target) for target in outcome.rounds},
            "verdicts": [asdict(verdict) for verdict in outcome.verdicts()],
        }
        for outcome in outcomes
    ]
    return json.dumps({"machine": dict(facts), "scenarios": scenarios}, indent=2, ensure_ascii=False) + "\n"


def _as_markdown(outcomes: Sequence[Outcome], facts: Mapping[str, str]) -> str:
    rows = [row for outcome in outcomes for row in _rows(outcome)]
    faults = [f"- {outcome.title}: {fault}" for outcome in outcomes for fault in outcome.faults()]
    sections = [
        "# Latest benchmark run",
        _markdown_table(COLUMNS, rows),
        READING,
        "![Bars per scenario](latest.png)",
        "## What stands beside the figures",
        _markdown_table(("Scenario", "Server", "Detail", "Median"), _detail_rows(outcomes)),
        "## Remarks" if faults else "",
        "\n".join(faults),
        "## Machine",
        _markdown_table(("Fact", "Value"), [[name, value] for name, value in facts.items()]),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _detail_rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    return [
        [outcome.title, target.label, detail.replace("_", " "), f"{value:,.2f}"]
        for outcome in outcomes
        for target in COMPARED
        for detail, value in outcome.details(target.key).items()
    ]


def _markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
