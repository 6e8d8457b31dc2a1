"""The data pipeline on Spark, over HTTP like any other client.

source          the `perennial` data source; its docstring is the manual
options         strings become frozen values, once, on the driver
reader          batch reads                      stream_reader   streaming reads
writer          batch and streaming writes       batching, lanes what they are made of
selection       filters pushed down              columns         the columns asked for
planning        positions become partitions; plain functions
feed, http      pages of a bucket's feed; one server, with patience
lake            the Parquet lake and its log     folds           what a stream is folded into
jobs            load, archive, compact, responses, report
pipeline_cli    the command line of the jobs
"""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark starts its workers with this; without it they would be the system's Python, which has no perennial.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Make `spark.read.format("perennial")` and its three siblings known to a session."""
    from perennial.spark.source import PerennialDataSource

    spark.dataSource.register(PerennialDataSource)
