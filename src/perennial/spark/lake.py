"""The Parquet lake: data files that anyone may read, and a log that says which of them count.

    LAKE/bucket=B/date=YYYY-MM-DD/FROM-TO-N.parquet    rows, by the day of their timestamp (UTC)
    LAKE/_log/B/00000000000000000001.json              a change: files added and removed, position reached
    LAKE/_staging/…                                    being written; of no account

A change happens when its log entry appears, whole, under a number nobody else has taken. Everything before
that can be repeated, so a job that dies leaves nothing half-written and two at once cannot both win.
"""

import json
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from perennial.spark.errors import PipelineError

LAKE_COLUMNS: Final = (
    "position long, stream string, offset long, next_offset long, timestamp timestamp, content_type string, "
    "closed boolean, payload binary"
)


@dataclass(frozen=True)
class DataFile:
    path: str  # relative to the lake
    date: str
    bytes: int


@dataclass(frozen=True)
class Change:
    """`position`: up to here the bucket's feed is in the lake once this change has happened."""

    position: int
    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()


@dataclass
class Contents:
    version: int = 0
    position: int = 0
    files: dict[str, DataFile] = field(default_factory=dict)

    def apply(self, change: Change) -> None:
        self.version += 1
        self.position = change.position
        for path in change.remove:
            self.files.pop(path, None)
        self.files.update((file.path, file) for file in change.add)


class Lake:
    """A lake at any path Hadoop understands: a directory, hdfs://…, s3a://…"""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self.root = root.rstrip("/")
        jvm: Any = spark._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        hadoop = spark._jsc.hadoopConfiguration()
        self._fs = self._path(self.root).getFileSystem(hadoop)
        self._context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._fs.getUri(), hadoop)
        self._rename_options = jvm.org.apache.hadoop.fs.Options.Rename
        self._jvm = jvm

    # Reading

    def contents(self, bucket: str) -> Contents:
        found = Contents()
        for name in sorted(self._names(f"_log/{bucket}")):
            if name.endswith(".json") and not name.startswith("."):
                found.apply(_parse(self._read_text(f"_log/{bucket}/{name}")))
        return found

    def buckets(self) -> list[str]:
        return sorted(self._names("_log"))

    def read(self, bucket: str) -> DataFrame:
        """Exactly what has been archived of a bucket."""
        return self.read_files(self.contents(bucket).files.values())

    def read_files(self, files: Iterable[DataFile]) -> DataFrame:
        paths = [f"{self.root}/{file.path}" for file in files]
        if not paths:
            return self._spark.createDataFrame([], LAKE_COLUMNS)
        return self._spark.read.schema(LAKE_COLUMNS).parquet(*paths)

    # Writing

    def stage(self, rows: DataFrame) -> str:
        """Write rows, with their `date`, where they do not count yet."""
        staging = f"_staging/{uuid.uuid4().hex}"
        try:
            rows.write.partitionBy("date").parquet(f"{self.root}/{staging}")
        except Exception as error:
            self.discard(staging)
            raise self._explained(error) from error
        return staging

    def publish(self, bucket: str, staging: str, name: str, contents: Contents, change: Change) -> Change:
        """Give staged files their places, then let them count; returns the change with its files."""
        try:
            added = self._place(bucket, staging, name)
            complete = Change(change.position, added, change.remove)
            self._log(bucket, contents.version + 1, complete)
        except Py4JJavaError as error:
            raise self._explained(error) from error
        finally:
            self.discard(staging)
        contents.apply(complete)
        # Those who read the directory itself see these files until now; those who read the log never again.
        for path in change.remove:
            self._delete(path)
        return complete

    def discard(self, staging: str) -> None:
        # It does not count anyway, and what went wrong before is the story.
        with suppress(Py4JJavaError):
            self._delete(staging)

    # Steps

    def _place(self, bucket: str, staging: str, name: str) -> tuple[DataFile, ...]:
        added = []
        for folder in sorted(self._names(staging)):
            if not folder.startswith("date="):
                continue
            home = f"bucket={bucket}/{folder}"
            self._fs.mkdirs(self._at(home))
            parts = sorted(part for part in self._names(f"{staging}/{folder}") if part.endswith(".parquet"))
            for number, part in enumerate(parts):
                path = f"{home}/{name}-{number:04d}.parquet"
                self._rename(f"{staging}/{folder}/{part}", path, self._rename_options.OVERWRITE)
                size = int(self._fs.getFileStatus(self._at(path)).getLen())
                added.append(DataFile(path, folder.removeprefix("date="), size))
        return tuple(added)

    def _log(self, bucket: str, version: int, change: Change) -> None:
        self._fs.mkdirs(self._at(f"_log/{bucket}"))
        draft = f"_log/{bucket}/.{uuid.uuid4().hex}"
        stream = self._fs.create(self._at(draft), True)
        try:
            stream.write(bytearray(json.dumps(asdict(change)).encode()))
        finally:
            stream.close()
        try:
            self._rename(draft, f"_log/{bucket}/{version:020d}.json", self._rename_options.NONE)
        except Py4JJavaError as error:
            self._delete(draft)
            if "FileAlreadyExists" not in str(error.java_exception):
                raise
            raise PipelineError(
                f"another job has changed bucket '{bucket}' in {self.root} meanwhile; nothing was added by "
                "this one. Run it again, one at a time"
            ) from None

    def _rename(self, source: str, target: str, option: Any) -> None:
        options = self._spark.sparkContext._gateway.new_array(self._rename_options, 1)  # type: ignore[union-attr]
        options[0] = option
        self._context.rename(self._at(source), self._at(target), options)

    def _names(self, folder: str) -> list[str]:
        path = self._at(folder)
        if not self._fs.exists(path):
            return []
        return [status.getPath().getName() for status in self._fs.listStatus(path)]

    def _read_text(self, path: str) -> str:
        stream = self._fs.open(self._at(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _delete(self, path: str) -> None:
        self._fs.delete(self._at(path), True)

    def _at(self, path: str) -> Any:
        return self._path(f"{self.root}/{path}")

    def _explained(self, error: Exception) -> PipelineError:
        text = str(error)
        if "No space left" in text or "Disk quota exceeded" in text or "DSQuotaExceeded" in text:
            return PipelineError(
                f"no room left at {self.root}: nothing of this round was added. Make room there and run the "
                "job again; it goes on where it stopped"
            )
        if "Permission denied" in text or "AccessControlException" in text:
            return PipelineError(f"may not write to {self.root}; check who owns it")
        cause = next((line for line in text.splitlines() if "Caused by" in line), text.split("\n", 1)[0])
        return PipelineError(f"could not write to {self.root}, and nothing was added: {cause.strip()}")


def _parse(text: str) -> Change:
    raw = json.loads(text)
    return Change(raw["position"], tuple(DataFile(**file) for file in raw["add"]), tuple(raw["remove"]))
