"""Archive: everything committed to a bucket, into a Parquet lake, once; small files become large ones."""

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from perennial.spark import register
from perennial.spark.feed import Extent, check_not_lost, extent, take_samples
from perennial.spark.http import Server
from perennial.spark.inherited import FORK_COLUMNS, InheritedReader, find_forks
from perennial.spark.jobs.summary import Summary
from perennial.spark.lake import INHERITED_COLUMNS, LAKE_COLUMNS, Change, Contents, DataFile, Lake
from perennial.spark.options import MIB, Target
from perennial.spark.planning import Range, Sample, end_by_bytes, sample_points

FILE_BYTES: Final = 128 * MIB  # of rows; on disk they are smaller
SMALL_FILE_BYTES: Final = 16 * MIB
DAY: Final = "date_from_unix_date(cast(floor(unix_micros(timestamp) / 86400000000) as int)) as date"
POLL_SECONDS: Final = 1.0
# How often a run that goes on looks for new forks: listing a bucket takes a request per thousand streams.
FORKS_SECONDS: Final = 60.0
MOST_FORK_TASKS: Final = 64


@dataclass(frozen=True)
class ArchiveOptions:
    target: Target
    lake: str
    # Go on as the bucket grows, until interrupted.
    follow: bool = False
    dry_run: bool = False
    # What one round takes on; a failure loses no more than a round.
    round_bytes: int = 1024 * MIB
    # A day's small files are merged when there are so many of them.
    merge_at: int = 16
    fail_on_data_loss: bool = True


def run(spark: SparkSession, options: ArchiveOptions) -> Summary:
    register(spark)
    lake = Lake(spark, options.lake)
    contents = lake.contents(options.target.bucket)
    before = contents.position
    rounds = merged = rows = gone = left_over = inherited = 0
    forks_seen = -FORKS_SECONDS
    try:
        while True:
            contents_before = contents.position
            planned = _plan_round(options, contents_before)
            if options.dry_run:
                return _dry_summary(options, contents, planned)
            if planned.range.rows:
                added = _archive_round(spark, lake, options, contents, planned)
                rows += added
                gone += planned.range.until - contents_before - added
                rounds += 1
            merged += _merge_small_files(lake, options, contents)
            if rounds <= 1:
                # Not earlier: what a run left that died just now becomes dead when its version is taken.
                left_over += lake.sweep(options.target.bucket, contents)
            if time.monotonic() - forks_seen >= FORKS_SECONDS:
                forks_seen = time.monotonic()
                inherited += _archive_inherited(spark, lake, options, contents)
            if contents.position >= planned.found.head:
                if not options.follow:
                    break
                time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        if not options.follow:
            raise
    return Summary(
        f"archived '{options.target.bucket}' to {lake.root}",
        {
            "positions": f"{before + 1} to {contents.position}"
            if contents.position > before
            else "nothing new",
            "rows": rows,
            **({"rows trimmed or deleted before they were archived": gone} if gone else {}),
            **({"forks whose inherited bytes were added": inherited} if inherited else {}),
            "rounds": rounds,
            "files in the lake": len(contents.files),
            "bytes in the lake": sum(file.bytes for file in contents.files.values()),
            "files merged": merged,
            **({"leftovers of broken-off runs removed": left_over} if left_over else {}),
        },
    )


@dataclass(frozen=True)
class _Round:
    found: Extent
    range: Range
    samples: tuple[Sample, ...]

    @property
    def estimated_bytes(self) -> float:
        average = sum(sample.row_bytes for sample in self.samples) / max(1, len(self.samples))
        return self.range.rows * average


def _plan_round(options: ArchiveOptions, archived: int) -> _Round:
    with Server(options.target, patience_seconds=0 if archived == 0 else None) as server:
        found = extent(server)
        if archived:
            check_not_lost(found, archived, options.target.bucket, options.fail_on_data_loss)
        after = max(archived, min(found.earliest - 1, found.head))
        everything = Range(after, found.head)
        samples = take_samples(server, sample_points(everything), found.head)
    end = end_by_bytes(after, found.head, samples, options.round_bytes)
    return _Round(found, Range(after, end), tuple(samples))


def _archive_round(
    spark: SparkSession, lake: Lake, options: ArchiveOptions, contents: Contents, planned: _Round
) -> int:
    """How many rows there were; a trim or a delete leaves fewer than there are positions."""
    target, wanted = options.target, planned.range
    rows = (
        spark.read.format("perennial")
        .schema(LAKE_COLUMNS)
        .options(url=target.url, bucket=target.bucket, retrySeconds=target.retry_seconds)
        .options(**({"token": target.token} if target.token else {}))
        .options(startingPosition=wanted.after, endingPosition=wanted.until)
        .load()
    )
    files = max(1, int(planned.estimated_bytes // FILE_BYTES))
    staging = lake.stage(target.bucket, contents, _dated(rows).coalesce(files))
    change = lake.publish(target.bucket, staging, contents, Change(wanted.until))
    return lake.read_files(change.add).count()


def _archive_inherited(spark: SparkSession, lake: Lake, options: ArchiveOptions, contents: Contents) -> int:
    """How many forks there were whose inherited bytes were not in the lake yet."""
    target = options.target
    with Server(target) as server:
        forks = find_forks(server)
    if forks and contents.inherited:
        found = lake.read_inherited(target.bucket).select("stream", "created").distinct().collect()
        known = {(row.stream, row.created) for row in found}
        forks = [fork for fork in forks if fork[:2] not in known]
    if not forks:
        return 0
    parts = spark.createDataFrame(forks, FORK_COLUMNS).repartition(min(len(forks), MOST_FORK_TASKS))
    rows = parts.mapInArrow(InheritedReader(target), INHERITED_COLUMNS)
    staging = lake.stage(target.bucket, contents, _dated(rows))
    lake.publish_inherited(target.bucket, staging, contents)
    return len(forks)


def _merge_small_files(lake: Lake, options: ArchiveOptions, contents: Contents) -> int:
    merged = 0
    for small in _small_files(contents).values():
        if len(small) < options.merge_at:
            continue
        rows = lake.read_files(small)
        together = sum(file.bytes for file in small)
        large = rows.coalesce(max(1, together // FILE_BYTES)).sortWithinPartitions("position")
        staging = lake.stage(options.target.bucket, contents, _dated(large))
        change = Change(contents.position, remove=tuple(file.path for file in small))
        lake.publish(options.target.bucket, staging, contents, change)
        merged += len(small)
    return merged


def _small_files(contents: Contents) -> dict[str, list[DataFile]]:
    days: dict[str, list[DataFile]] = defaultdict(list)
    for file in contents.files.values():
        if file.bytes < SMALL_FILE_BYTES:
            days[file.date].append(file)
    return days


def _dated(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("*", DAY)


def _dry_summary(options: ArchiveOptions, contents: Contents, planned: _Round) -> Summary:
    return Summary(
        f"would archive '{options.target.bucket}' to {options.lake}",
        {
            "positions": f"{planned.range.after + 1} to {planned.found.head}",
            "rows at most": planned.found.head - planned.range.after,
            "bytes of the first round, about": int(planned.estimated_bytes),
            "files in the lake": len(contents.files),
        },
    )
