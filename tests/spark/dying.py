"""The data source with tasks that die at the worst moment: when the server knows and Spark does not."""

import os
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from perennial.spark.options import parse_write_options
from perennial.spark.source import PerennialDataSource
from perennial.spark.writer import AppendStreamWriter, AppendWriter


def die_the_first_time() -> None:
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0:
        os._exit(13)


class DyingWriter(AppendWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        report = super().write(iterator)
        die_the_first_time()
        return report


class DyingStreamWriter(AppendStreamWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        report = super().write(iterator)
        die_the_first_time()
        return report


class DyingDataSource(PerennialDataSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return DyingWriter(parse_write_options(self._given()), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark names it)
        return DyingStreamWriter(parse_write_options(self._given()), schema, overwrite)
