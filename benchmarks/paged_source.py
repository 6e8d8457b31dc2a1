"""To compare with, the obvious way to read streams into Spark: JSON pages by the official client."""

import json
from collections.abc import Iterator

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

TASKS = 8


class PagedDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "paged"

    def schema(self) -> str:
        return "stream string, payload string"

    def reader(self, schema: StructType) -> DataSourceReader:
        return PagedReader(self.options["url"], self.options["bucket"], int(self.options["streams"]))


class PagedReader(DataSourceReader):
    def __init__(self, url: str, bucket: str, streams: int) -> None:
        self._root = f"{url}/ds/{bucket}"
        self._streams = streams

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(range(task, self._streams, TASKS)) for task in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str]]:
        from durable_streams import stream

        for number in partition.value:
            name = f"s-{number}"
            with stream(f"{self._root}/{name}", live=False) as response:
                for message in response.iter_json():
                    yield name, json.dumps(message)
