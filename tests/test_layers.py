"""Imports only point down, and the rules of the protocol stay pure."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import perennial

PACKAGE = Path(perennial.__file__).parent

# Each room, and what of ours it may import. Top-level modules are nobody's, unless named.
MAY_IMPORT = {
    "protocol": set[str](),
    "store": {"protocol"},
    "service": {"store", "protocol"},
    "proxy": {"service", "store", "protocol", "settings"},
    "http": {"proxy", "service", "store", "protocol", "settings"},
    "client": {"protocol"},
    "spark": {"client"},
    "cli": {
        "listening",
        "runtime",
        "stand_in",
        "http",
        "service",
        "store",
        "client",
        "settings",
        "spark",
        "protocol",
    },
}

# Clocks, chance and the outside world reach the protocol as arguments.
IMPURE = {"asyncio", "os", "random", "secrets", "socket", "threading", "time"}


def imports(path: Path) -> Iterator[str]:
    """The absolute dotted name of everything a module imports, wherever in it the statement stands."""
    package = path.relative_to(PACKAGE.parent).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            origin = [*above, *([node.module] if node.module else [])]
            yield from (".".join([*origin, alias.name]) for alias in node.names)


def modules(room: str) -> list[Path]:
    return sorted((PACKAGE / room).rglob("*.py"))


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_imports_only_point_down(room: str) -> None:
    allowed = {room, "__version__"} | MAY_IMPORT[room]
    for path in modules(room):
        ours = {name.split(".")[1] for name in imports(path) if name.startswith("perennial.")}
        assert ours <= allowed, f"{path.relative_to(PACKAGE)} imports {sorted(ours - allowed)}"


def test_protocol_is_pure() -> None:
    for path in modules("protocol"):
        impure = {name.split(".")[0] for name in imports(path)} & IMPURE
        assert not impure, f"{path.relative_to(PACKAGE)} imports {sorted(impure)}"


def test_every_room_has_its_rule() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms <= MAY_IMPORT.keys()
