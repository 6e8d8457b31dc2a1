"""`requirements.md` tells the truth: every test it names exists, and cites the section it is named for."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SECTIONS = {"1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6"}
SECTIONS |= {"3.1", "3.2", "3.3", "3.4", "4", "5"}

_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
# `2.2: "…"`, `1.1, 1.4: "…"`: what stands before the colon.
_CITED = re.compile(r"((?:\d(?:\.\d)?, )*\d(?:\.\d)?):")


def rows() -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Section (empty for our own choices), wording and tests of each row."""
    found = []
    for line in (HERE / "requirements.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        tests = _TEST.findall(cells[-1])
        if tests:
            found.append((cells[0] if len(cells) == 3 else "", cells[-2], tests))
    return found


@cache
def docstrings(file: str) -> dict[str, str]:
    path = ROOT / file if "/" in file else HERE / file
    return {
        node.name: ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }


def cited(docstring: str) -> set[str]:
    return {section for sections in _CITED.findall(docstring) for section in sections.split(", ")}


@pytest.mark.parametrize(("section", "wording", "tests"), rows())
def test_the_tests_of_a_requirement_exist_and_name_it(
    section: str, wording: str, tests: list[tuple[str, str]]
) -> None:
    for file, name in tests:
        assert name in docstrings(file), f"{file} has no {name}"
        if section:
            assert section in cited(docstrings(file)[name]), f"{name} does not cite {section}"


def test_every_section_has_a_row() -> None:
    assert {section for section, _, _ in rows()} - {""} == SECTIONS
