"""The `perennial` data source: what Spark sees. Its docstring is the manual."""

from collections.abc import Mapping
from typing import cast

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from perennial.spark.columns import full_schema
from perennial.spark.feed import first_contact
from perennial.spark.options import parse_read_options, parse_write_options
from perennial.spark.reader import FeedReader, NarrowedReader
from perennial.spark.stream_reader import FeedStreamReader
from perennial.spark.writer import AppendStreamWriter, AppendWriter


class PerennialDataSource(DataSource):
    """Streams of a Perennial bucket as a table: read and written, in batches and in streaming queries.

    Name: ``perennial``, after ``perennial.spark.register(spark)``.

    Every option of a read or a write

    ============== =================================================================================
    url            the server, ``http://127.0.0.1:4437``
    bucket         the bucket, ``default`` for streams at ``/v1/stream/``
    token          a service token, where the server wants one
    retrySeconds   how long a lost connection or an overloaded server is waited for; default 60
    ============== =================================================================================

    Reading gives one row per message, in the order of the bucket's feed:
    ``position long, stream string, offset long, next_offset long, timestamp timestamp, content_type string,
    closed boolean, payload binary, bucket string``.

    ==================== ===========================================================================
    streams, prefix      only these streams (comma-separated), or those whose names begin so
    columns              only these columns are handed to Spark; ``.schema(...)`` does the same
    value                ``true`` adds ``value``, the payload as a string
    jsonSchema           ``id bigint, name string`` adds typed columns parsed from JSON payloads
    startingPosition     ``earliest`` (default), ``latest`` or a position: rows after it
    endingPosition       the last position to read
    maxRowsPerTrigger    at most so many rows in a micro-batch
    maxBytesPerTrigger   about so many bytes in a micro-batch: ``16m``
    splitBytes           about so many bytes in a task of a batch read; default 64m
    pageBytes            about so many bytes in one request; default 8m
    failOnDataLoss       ``false``: go on when positions were trimmed before they were read
    pushFilters          ``true``: conditions on ``stream`` and ``position`` are answered by the server. Use
                         such a data frame for one query only: Spark 4.3 would apply its conditions to later
                         ones, too. Needs spark.sql.python.filterPushdown.enabled
    ==================== ===========================================================================

    A data frame reads the feed as it stood when it was first used; ``load()`` again to see what came since.

    Writing takes the columns ``stream`` and ``payload`` (binary or string), and optionally ``content_type``,
    ``closed`` (true closes the stream with this row) and ``producer`` (see below). Missing streams are
    created. Each row becomes one message, once, whatever is retried, killed or restarted on the way.

    ==================== ===========================================================================
    contentType          of new streams where no column says so; default application/octet-stream
    batchRows            at most so many rows in one request; default 10000
    batchBytes           about so many bytes in one request; default 1m
    connections          to the server, per task; default 32
    coalesce             ``true``: rows of a byte stream are joined into one message per request
    writeId              the same id makes a repeated batch write harmless, if its rows are the same
    grouped              ``true`` promises that the rows of a stream stand together in a partition
    ==================== ===========================================================================

    What was taken is recognised by (stream, producer, sequence). In a batch write the producer is the write's
    id and the partition, in a streaming query the query's id and the partition, with the batch id as its
    epoch. So a partition computed twice must give the same rows in the same order, as it does from files,
    from Kafka and from this source. After a shuffle the order may differ: sort within partitions before
    writing. A ``producer`` column replaces the partition in this: rows of one stream and producer are then
    recognised in any later write, too, provided that they stand together and come in the same order.

    Examples
    --------
    >>> from perennial.spark import register
    >>> register(spark)
    >>> agents = spark.read.format("perennial").option("url", URL).option("bucket", "agents").load()
    >>> agents.where("stream like 'chat-%'").groupBy("stream").count().show()
    >>> rows.write.format("perennial").option("url", URL).option("bucket", "agents").mode("append").save()
    """

    @classmethod
    def name(cls) -> str:
        return "perennial"

    def schema(self) -> str:
        options = parse_read_options(self._given())
        first_contact(options.target)
        return full_schema(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_read_options(self._given())
        return (NarrowedReader if options.push_filters else FeedReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return FeedStreamReader(parse_read_options(self._given()), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return AppendWriter(parse_write_options(self._given()), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return AppendStreamWriter(parse_write_options(self._given()), schema, overwrite)

    def _given(self) -> Mapping[str, str]:
        return cast(Mapping[str, str], self.options)
