"""Batch reads: the feed as it stood when the query was planned, cut into ranges of about equal bytes."""

import os
from collections.abc import Iterable, Iterator
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from perennial.spark.columns import Shaper, check_schema
from perennial.spark.feed import extent, read_pages, take_samples
from perennial.spark.http import Server
from perennial.spark.options import MIB, ReadOptions
from perennial.spark.planning import Range, sample_points, split_by_bytes
from perennial.spark.selection import END_OF_TIME, Selection, narrow

TASKS_PER_CORE: Final = 2
LEAST_TASK_BYTES: Final = 1 * MIB


class FeedPartition(InputPartition):
    """A range of positions."""

    def __init__(self, after: int, until: int) -> None:
        super().__init__((after, until))

    @property
    def range(self) -> Range:
        return Range(*self.value)


class RangeReader:
    """What batch and streaming reads share: turning a range of positions into batches."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema)
        self.options = options
        self.schema = schema
        self.selection = initial_selection(options)

    def read(self, partition: Any) -> Iterator[Any]:
        if partition.value is None or self.selection.is_empty:
            return  # nothing was planned
        shaper = Shaper(self.schema, self.options.target.bucket)
        target, page_bytes = self.options.target, self.options.page_bytes
        for batch in read_pages(target, partition.range, self.selection, page_bytes):
            yield shaper.shape(batch)


class FeedReader(RangeReader, DataSourceReader):
    """Offers no push-down, on purpose: see `NarrowedReader`."""

    def partitions(self) -> list[InputPartition]:
        with Server(self.options.target, patience_seconds=0) as server:
            found = extent(server)
            chosen = self.selection
            # Every task reads up to the head seen here, whatever is appended meanwhile.
            wanted = Range(max(chosen.after, found.earliest - 1), min(chosen.until, found.head))
            if chosen.is_empty or not wanted.rows:
                return [InputPartition(None)]
            samples = take_samples(server, sample_points(wanted), wanted.until)
        total = wanted.rows * sum(sample.row_bytes for sample in samples) / max(1, len(samples))
        at_least = min(TASKS_PER_CORE * (os.cpu_count() or 1), int(total // LEAST_TASK_BYTES))
        ranges = split_by_bytes(wanted, samples, self.options.split_bytes, at_least)
        return [FeedPartition(part.after, part.until) for part in ranges]


class NarrowedReader(FeedReader):
    """Takes over conditions on streams and positions; only where the user asked for it.

    Spark 4.3 keeps the planned reader with the relation. Every later query over the same data frame or view
    that has no condition of its own gets this reader again, narrowed as it is, and silently lacks rows.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.selection, left = narrow(self.selection, filters)
        return left


def initial_selection(options: ReadOptions) -> Selection:
    until = END_OF_TIME if options.ending_position is None else options.ending_position
    streams = frozenset(options.streams) if options.streams else None
    return Selection(options.starting_position or 0, until, streams, options.prefix)
