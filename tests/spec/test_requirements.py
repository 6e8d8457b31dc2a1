"""The table of requirements and the tests agree with each other."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
SECTION = re.compile(r"[0-9]+(\.[0-9]+)*")
KEYWORDS = {"MUST", "MUST NOT", "SHOULD", "SHOULD NOT"}

# Not of the base protocol.
ELSEWHERE = {"test_choices.py", "test_forks.py", "test_requirements.py"}


class Row(NamedTuple):
    section: str
    keyword: str
    requirement: str
    test: str


def rows() -> list[Row]:
    lines = (HERE / "requirements.md").read_text().splitlines()
    table = [line for line in lines if line.startswith("|")]
    return [Row(*(cell.strip() for cell in line.strip("|").split(" | "))) for line in table[2:]]


def docstrings() -> dict[str, str]:
    """The docstring of every test of this folder, by `file::name`."""
    found = {}
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[f"{path.name}::{node.name}"] = ast.get_docstring(node) or ""
    return found


def sections(docstring: str) -> set[str]:
    """The sections a docstring quotes: numbers before a colon, or in a list before one."""
    return {match[0] for match in re.finditer(r"\b[0-9]+(?:\.[0-9]+)*(?=[,:]| and | to )", docstring)}


def test_every_row_is_well_formed() -> None:
    assert len(rows()) > 80
    for row in rows():
        assert SECTION.fullmatch(row.section), row
        assert row.keyword in KEYWORDS, row
        assert row.requirement, row
        assert "::" in row.test or row.test.startswith("no test: "), row


def test_every_named_test_exists_and_quotes_its_section() -> None:
    existing = docstrings()
    for row in rows():
        if row.test.startswith("no test: "):
            continue
        assert row.test in existing, row
        assert row.section in sections(existing[row.test]), (row, existing[row.test])


def test_every_test_of_the_base_protocol_quotes_a_section() -> None:
    for name, docstring in docstrings().items():
        if name.partition("::")[0] not in ELSEWHERE:
            assert SECTION.match(docstring), f"{name} quotes no section"


def test_requirements_stand_in_the_order_of_the_document() -> None:
    order = [tuple(map(int, row.section.split("."))) for row in rows()]
    assert order == sorted(order)
