"""The Parquet lake: data files that anyone may read, and a log that says which of them count.

    LAKE/bucket=B/date=YYYY-MM-DD/VERSION-ID-N.parquet    rows, by the day of their timestamp (UTC)
    LAKE/_inherited/bucket=B/date=…/…                     what forks took over from their sources
    LAKE/_log/B/VERSION.json                              a change: files added and removed, position reached
    LAKE/_staging/B/VERSION-ID/…                          being written; of no account

A change happens when its log entry appears, whole, under a version nobody else has taken. Everything before
that can be repeated, so a job that dies leaves nothing half-written and two at once cannot both win.

Every file bears the version it was meant for. One that the log does not name, though its version is taken,
can never count any more: whoever wrote it died or came second. That is what `sweep` removes, at any time,
without disturbing a job at work.
"""

import json
import re
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from perennial.spark.errors import PipelineError

LAKE_COLUMNS: Final = (
    "position long, stream string, offset long, next_offset long, timestamp timestamp, content_type string, "
    "closed boolean, payload binary"
)
INHERITED_COLUMNS: Final = f"{LAKE_COLUMNS}, created long"

_VERSIONED = re.compile(r"\.?([0-9]{20})-.*")


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
    inherited: tuple[DataFile, ...] = ()


@dataclass
class Contents:
    version: int = 0
    position: int = 0
    files: dict[str, DataFile] = field(default_factory=dict)
    inherited: dict[str, DataFile] = field(default_factory=dict)

    def apply(self, change: Change) -> None:
        self.version += 1
        self.position = change.position
        for path in change.remove:
            self.files.pop(path, None)
        self.files.update((file.path, file) for file in change.add)
        self.inherited.update((file.path, file) for file in change.inherited)


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

    def read_inherited(self, bucket: str) -> DataFrame:
        """What forks show of their sources; `created` (ms) tells forks of one name apart."""
        return self.read_files(self.contents(bucket).inherited.values(), INHERITED_COLUMNS)

    def read_files(self, files: Iterable[DataFile], columns: str = LAKE_COLUMNS) -> DataFrame:
        paths = [f"{self.root}/{file.path}" for file in files]
        if not paths:
            return self._spark.createDataFrame([], columns)
        return self._spark.read.schema(columns).parquet(*paths)

    # Writing

    def stage(self, bucket: str, contents: Contents, rows: DataFrame) -> str:
        """Write rows, with their `date`, where they do not count yet."""
        staging = f"_staging/{bucket}/{contents.version + 1:020d}-{uuid.uuid4().hex[:12]}"
        try:
            rows.write.partitionBy("date").parquet(f"{self.root}/{staging}")
        except Exception as error:
            self._discard(staging)
            raise self._explained(error) from error
        return staging

    def publish(self, bucket: str, staging: str, contents: Contents, change: Change) -> Change:
        """Give staged files their places, then let them count; returns the change with its files."""
        moves = self._moves(staging, f"bucket={bucket}")
        return self._publish(bucket, staging, contents, moves, replace(change, add=tuple(moves.values())))

    def publish_inherited(self, bucket: str, staging: str, contents: Contents) -> Change:
        moves = self._moves(staging, f"_inherited/bucket={bucket}")
        change = Change(contents.position, inherited=tuple(moves.values()))
        return self._publish(bucket, staging, contents, moves, change)

    def _publish(
        self, bucket: str, staging: str, contents: Contents, moves: dict[str, DataFile], complete: Change
    ) -> Change:
        draft = f"_log/{bucket}/.{staging.rpartition('/')[2]}"
        try:
            # All that takes room comes first; from there on there are only renames.
            self._write_text(draft, json.dumps(asdict(complete)))
            for source, file in moves.items():
                self._fs.mkdirs(self._at(file.path).getParent())
                self._rename(source, file.path)
        except Py4JJavaError as error:
            self._discard(draft, *(file.path for file in moves.values()))
            raise self._explained(error) from error
        else:
            self._commit(bucket, draft, contents.version + 1, list(moves.values()))
        finally:
            self._discard(staging)
        contents.apply(complete)
        # Those who read the directory itself see these files until now; those who read the log never again.
        self._discard(*complete.remove)
        return complete

    def sweep(self, bucket: str, contents: Contents) -> int:
        """Remove what jobs that died have left; how much there was."""
        homes = (f"bucket={bucket}", f"_inherited/bucket={bucket}")
        folders = [f"{home}/{date}" for home in homes for date in self._names(home)]
        places = [f"_staging/{bucket}", f"_log/{bucket}", *folders]
        alive = contents.files.keys() | contents.inherited.keys()
        dead = [
            f"{place}/{name}"
            for place in places
            for name in self._names(place)
            if (found := _VERSIONED.fullmatch(name)) is not None
            and int(found[1]) <= contents.version
            and f"{place}/{name}" not in alive
        ]
        self._discard(*dead)
        return len(dead)

    # Steps

    def _moves(self, staging: str, home: str) -> dict[str, DataFile]:
        """Where each staged file belongs."""
        moves = {}
        for folder in sorted(self._names(staging)):
            if not folder.startswith("date="):
                continue
            parts = sorted(part for part in self._names(f"{staging}/{folder}") if part.endswith(".parquet"))
            for number, part in enumerate(parts):
                source = f"{staging}/{folder}/{part}"
                path = f"{home}/{folder}/{staging.rpartition('/')[2]}-{number:04d}.parquet"
                size = int(self._fs.getFileStatus(self._at(source)).getLen())
                moves[source] = DataFile(path, folder.removeprefix("date="), size)
        return moves

    def _commit(self, bucket: str, draft: str, version: int, added: list[DataFile]) -> None:
        try:
            self._rename(draft, f"_log/{bucket}/{version:020d}.json")
        except Py4JJavaError as error:
            if "FileAlreadyExists" not in str(error.java_exception):
                # Whether it happened is unknown, so the files stay; a later run sees, and sweeps.
                raise self._explained(error) from error
            self._discard(draft, *(file.path for file in added))
            raise PipelineError(
                f"another job has changed bucket '{bucket}' in {self.root} meanwhile; nothing was added by "
                "this one. Run it again, one at a time"
            ) from None

    def _rename(self, source: str, target: str) -> None:
        options = self._spark.sparkContext._gateway.new_array(self._rename_options, 1)  # type: ignore[union-attr]
        options[0] = self._rename_options.NONE
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

    def _write_text(self, path: str, text: str) -> None:
        stream = self._fs.create(self._at(path), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _discard(self, *paths: str) -> None:
        for path in paths:
            # It does not count anyway, and what went wrong before is the story.
            with suppress(Py4JJavaError):
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
    add, inherited = (tuple(DataFile(**file) for file in raw.get(name, ())) for name in ("add", "inherited"))
    return Change(raw["position"], add, tuple(raw["remove"]), inherited)
