"""What a job says when it is done: a few facts and, where there is one, a table."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Summary:
    title: str
    facts: dict[str, Any]
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[Any, ...]] = field(default_factory=tuple)
