"""Which rows of a feed are wanted: the options' choice, narrowed by the filters Spark pushes down."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

END_OF_TIME: Final = (1 << 63) - 1
NEVER_NULL: Final = frozenset(
    {"position", "stream", "offset", "next_offset", "timestamp", "content_type", "closed", "bucket"}
)


@dataclass(frozen=True)
class Selection:
    """Rows with `after` < position <= `until`, of the named streams (None: of all), with the prefix."""

    after: int = 0
    until: int = END_OF_TIME
    streams: frozenset[str] | None = None
    prefix: str = ""

    def narrowed(self, condition: Filter) -> "Selection | None":
        """With one more condition; None when it is not of a kind that can be said here."""
        match condition:
            case IsNotNull(attribute=(column,)) if column in NEVER_NULL:
                return self
            case EqualTo(attribute=("stream",), value=str(name)):
                return self._only({name})
            case EqualNullSafe(attribute=("stream",), value=str(name)):
                return self._only({name})
            case In(attribute=("stream",), value=names):
                return self._only({name for name in names if isinstance(name, str)})
            case StringStartsWith(attribute=("stream",), value=prefix):
                return self._starting_with(prefix)
            case EqualTo(attribute=("position",), value=int(position)):
                return self._between(position - 1, position)
            case GreaterThan(attribute=("position",), value=int(position)):
                return self._between(position, END_OF_TIME)
            case GreaterThanOrEqual(attribute=("position",), value=int(position)):
                return self._between(position - 1, END_OF_TIME)
            case LessThan(attribute=("position",), value=int(position)):
                return self._between(0, position - 1)
            case LessThanOrEqual(attribute=("position",), value=int(position)):
                return self._between(0, position)
        return None

    def query(self) -> dict[str, str]:
        """What the server can choose by; the rest is for `keep`."""
        if self.streams is not None and len(self.streams) == 1:
            return {"stream": next(iter(self.streams))}
        prefix = self.prefix if self.streams is None else _common_prefix(self.streams)
        return {"prefix": prefix} if prefix else {}

    def keep(self, batch: Any) -> Any:
        """The wanted rows of a batch that came for `query`."""
        if self.streams is None or len(self.streams) == 1:
            return batch
        return batch.filter(pc.is_in(batch["stream"], pa.array(sorted(self.streams), pa.string())))

    @property
    def is_empty(self) -> bool:
        return self.until <= self.after or (self.streams is not None and not self.streams)

    def _only(self, names: set[str]) -> "Selection":
        known = names if self.streams is None else names & self.streams
        return replace(self, streams=frozenset(name for name in known if name.startswith(self.prefix)))

    def _starting_with(self, prefix: str) -> "Selection":
        if self.streams is not None:
            return replace(self, streams=frozenset(n for n in self.streams if n.startswith(prefix)))
        if prefix.startswith(self.prefix):
            return replace(self, prefix=prefix)
        return self if self.prefix.startswith(prefix) else replace(self, streams=frozenset())

    def _between(self, after: int, until: int) -> "Selection":
        return replace(self, after=max(self.after, after), until=min(self.until, until))


def _common_prefix(names: frozenset[str]) -> str:
    first, last = min(names, default=""), max(names, default="")
    same = (index for index, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return first[: next(same, min(len(first), len(last)))]


def narrow(selection: Selection, filters: Iterable[Filter]) -> tuple[Selection, list[Filter]]:
    """The narrowed selection, and the filters left for Spark."""
    left = []
    for condition in filters:
        narrowed = selection.narrowed(condition)
        if narrowed is None:
            left.append(condition)
        else:
            selection = narrowed
    return selection, left
