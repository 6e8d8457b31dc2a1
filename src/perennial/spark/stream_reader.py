"""Streaming reads: offsets are feed positions, and a batch is the range between two of them."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from perennial.spark.feed import check_not_lost, extent, first_contact, take_samples
from perennial.spark.http import Server
from perennial.spark.options import ReadOptions
from perennial.spark.planning import Range, end_by_bytes, end_by_rows, fixed_split, sample_points
from perennial.spark.reader import FeedPartition, RangeReader

POSITION: Final = "position"
# A function of the range alone: a batch that is replayed on a larger cluster must be cut into the same tasks,
# because a sink may recognise what it has taken by task.
MOST_TASKS: Final = 16
LEAST_TASK_ROWS: Final = 5_000


class FeedStreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver for as long as the query; `read` is called on copies of it in the tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._target_head: int | None = None  # where an AvailableNow run ends
        self._planned = 0  # up to where batches have been planned

    # The course of a query

    def initialOffset(self) -> dict[str, int]:
        found = first_contact(self.options.target)
        if self.options.starting_latest:
            return {POSITION: found.head}
        if self.options.starting_position is None:
            return {POSITION: found.earliest - 1}
        check_not_lost(
            found, self.options.starting_position, self.options.target.bucket, self.options.fail_on_data_loss
        )
        return {POSITION: max(self.options.starting_position, found.earliest - 1)}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target_head = first_contact(self.options.target).head

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_rows_per_trigger is not None:
            return ReadMaxRows(self.options.max_rows_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        after = start[POSITION]
        with Server(self.options.target) as server:
            found = extent(server)
            check_not_lost(found, after, self.options.target.bucket, self.options.fail_on_data_loss)
            head = found.head if self._target_head is None else min(found.head, self._target_head)
            end = max(after, self._admit(server, max(after, found.earliest - 1), head, limit))
        self._planned = end
        return {POSITION: end}

    def reportLatestOffset(self) -> dict[str, int]:
        with Server(self.options.target) as server:
            head = extent(server).head
        return {POSITION: head, "backlog": max(0, head - self._planned)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        self._planned = max(self._planned, end[POSITION])
        ranges = fixed_split(Range(start[POSITION], end[POSITION]), MOST_TASKS, LEAST_TASK_ROWS)
        return [FeedPartition(part.after, part.until) for part in ranges]

    def commit(self, end: dict[str, int]) -> None:
        """The feed keeps everything, for other readers too: there is nothing to let go of."""

    # Internals

    def _admit(self, server: Server, after: int, head: int, limit: ReadLimit) -> int:
        end = head if self.options.ending_position is None else min(head, self.options.ending_position)
        if isinstance(limit, ReadMaxRows):
            return end_by_rows(after, end, limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            samples = take_samples(server, sample_points(Range(after, end)), end)
            return end_by_bytes(after, end, samples, limit.max_bytes)
        return end
