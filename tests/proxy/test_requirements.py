"""The list of requirements and the tests it names keep each other honest."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# What the document itself contains, counted once by hand: a row that gets lost is noticed.
ROWS = 69


def read_rows() -> list[tuple[str, str, str, str]]:
    rows = []
    for line in (HERE / "requirements.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and re.fullmatch(r"[0-9.]+", cells[0]):
            rows.append((cells[0], cells[1], cells[2], cells[3]))
    return rows


@cache
def read_tests() -> dict[str, list[str]]:
    """Test names and the docstrings of all functions that have that name."""
    found: dict[str, list[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        if "node_modules" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.setdefault(node.name, []).append(ast.get_docstring(node) or "")
    return found


def test_no_requirement_is_lost() -> None:
    assert len(read_rows()) == ROWS


@pytest.mark.parametrize(("section", "level", "requirement", "evidence"), read_rows())
def test_every_requirement_is_tested_or_told(
    section: str, level: str, requirement: str, evidence: str
) -> None:
    assert level in ("MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "REQUIRED", "NOT")
    if told := re.fullmatch(r"told in (\S+)", evidence):
        assert (ROOT / told[1]).exists()
        return
    tests = read_tests()
    names = re.findall(r"`(test_\w+)`", evidence)
    assert names, f"nothing tests {requirement!r}"
    for name in names:
        assert name in tests, f"there is no {name}"
        sections = [
            number for doc in tests[name] for number in re.findall(r"\b[0-9]+(?:\.[0-9]+)?(?=[:,])", doc)
        ]
        assert section in sections, f"{name} does not name section {section}, but {sections}"
