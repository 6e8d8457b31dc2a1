"""Load: any data set Spark can read, or a lake, into streams; run twice, loaded once."""

import hashlib
from dataclasses import dataclass
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from perennial.spark import register
from perennial.spark.errors import BadOption, PipelineError
from perennial.spark.http import Server, create_bucket, list_streams
from perennial.spark.jobs.summary import Summary
from perennial.spark.lake import Lake
from perennial.spark.options import Target

FORMATS: Final = ("parquet", "csv", "json")
# Part of a producer's identity: requests cut in another way are other requests.
BATCH_ROWS: Final = 2_000
BATCH_BYTES: Final = 512 * 1024


@dataclass(frozen=True)
class LoadOptions:
    target: Target
    # Files, with expressions over their columns …
    path: str | None = None
    format: str = "parquet"
    stream: str | None = None
    payload: str | None = None
    content_type: str = "application/json"
    # … or a lake, and the bucket in it if it has another name.
    lake: str | None = None
    lake_bucket: str | None = None
    dry_run: bool = False


def run(spark: SparkSession, options: LoadOptions) -> Summary:
    _check(options)
    register(spark)
    if not options.dry_run:
        create_bucket(options.target)
    return _load_lake(spark, options) if options.lake else _load_files(spark, options)


def _check(options: LoadOptions) -> None:
    if (options.path is None) == (options.lake is None):
        raise BadOption("say where to load from: --from PATH with --format, or --from-lake DIR")
    if options.path is not None:
        if options.format not in FORMATS:
            raise BadOption(f"--format is {options.format!r}; it must be one of {', '.join(FORMATS)}")
        if not options.stream or not options.payload:
            raise BadOption(
                "--stream and --payload are expressions over the columns, such as "
                '--stream "concat(\'user-\', user_id)" --payload "to_json(struct(*))"'
            )


# Files


def _load_files(spark: SparkSession, options: LoadOptions) -> Summary:
    rows = _rows_of_files(spark, options)
    if options.dry_run:
        return _dry_summary(rows, options, f"would load {options.path}")
    before = _tails(options.target)
    _write(_in_order(rows, "file", "block", "row").drop("file", "block", "row"), options)
    return _summary(f"loaded {options.path} into '{options.target.bucket}'", before, _tails(options.target))


def _rows_of_files(spark: SparkSession, options: LoadOptions) -> DataFrame:
    """Stream, payload and producer, and the place of each row in its file.

    A file is its path, size and time: its rows have a producer of their own, so that files that are there
    already are recognised when the data set has grown.
    """
    assert options.path is not None, "checked"
    reader = spark.read.options(header="true") if options.format == "csv" else spark.read
    try:
        files = reader.format(options.format).load(options.path)
    except AnalysisException as error:
        raise PipelineError(f"cannot read {options.path} as {options.format}: {_first_line(error)}") from None
    manner = f"{options.stream}|{options.payload}|{options.content_type}|{BATCH_ROWS}|{BATCH_BYTES}"
    recipe = hashlib.sha256(manner.encode()).hexdigest()[:16]
    file = "_metadata.file_path, _metadata.file_size, unix_micros(_metadata.file_modification_time)"
    try:
        return files.selectExpr(
            f"cast({options.stream} as string) as stream",
            f"{options.payload} as payload",
            f"concat('load-{recipe}-', substring(sha2(concat_ws('|', {file}), 256), 1, 32)) as producer",
            "_metadata.file_path as file",
            "_metadata.file_block_start as block",
            "monotonically_increasing_id() as row",
        )
    except AnalysisException as error:
        raise PipelineError(
            f"--stream or --payload does not fit the data: {_first_line(error)}. "
            f"Its columns are {', '.join(files.columns)}"
        ) from None


# Lakes


def _load_lake(spark: SparkSession, options: LoadOptions) -> Summary:
    assert options.lake is not None, "checked"
    lake, bucket = Lake(spark, options.lake), options.lake_bucket or options.target.bucket
    if not lake.contents(bucket).version:
        known = ", ".join(lake.buckets()) or "none"
        raise PipelineError(f"{options.lake} holds nothing of bucket '{bucket}'; buckets in it: {known}")
    rows = _latest_lives(lake.read(bucket), lake.read_inherited(bucket))
    if options.dry_run:
        return _dry_summary(rows, options, f"would load {options.lake}")
    before = _tails(options.target)
    missing = _beyond(spark, rows, before)
    # A stream's offsets have no holes; a close without data comes after the message that ends there.
    _write(_in_order(missing, "offset", "next_offset", "position").drop("offset", "next_offset"), options)
    incomplete = rows.where("base > 0").select("stream").distinct().count()
    facts = {"streams whose beginning was gone before it was archived": incomplete} if incomplete else {}
    title = f"loaded '{bucket}' of {options.lake} into '{options.target.bucket}'"
    return _summary(title, before, _tails(options.target), facts)


def _latest_lives(rows: DataFrame, inherited: DataFrame) -> DataFrame:
    """A name may have been used again after a delete; what counts is the stream that came last.

    A life begins with offset 0 or, as a fork, with what it inherited.
    """
    forks = inherited.groupBy("stream").agg(F.max("created").alias("created"))
    since_fork = F.expr("created is null or unix_millis(timestamp) >= created")
    first = rows.join(forks, "stream", "left").groupBy("stream")
    begins = first.agg(
        F.max(F.when(F.expr("offset = 0") & since_fork, F.col("position"))).alias("anew"),
        F.min(F.when(since_fork, F.col("position"))).alias("oldest"),
    )
    own = rows.join(begins, "stream").where("position >= coalesce(anew, oldest)").drop("anew", "oldest")
    # A stream that began anew since then is no fork any more.
    still_forks = forks.join(begins.where("anew is not null"), "stream", "left_anti")
    taken_over = inherited.join(still_forks, ["stream", "created"]).where("payload is not null")
    lives = own.unionByName(taken_over.drop("created"))
    return lives.join(lives.groupBy("stream").agg(F.min("offset").alias("base")), "stream")


def _beyond(spark: SparkSession, rows: DataFrame, tails: dict[str, tuple[int, bool]]) -> DataFrame:
    """The rows that are not in the target yet: an earlier run may have been cut off anywhere."""
    known = [(stream, tail, closed) for stream, (tail, closed) in tails.items()]
    there = spark.createDataFrame(known, "stream string, tail long, is_closed boolean")
    joined = rows.join(F.broadcast(there), "stream", "left").na.fill({"tail": 0, "is_closed": False})
    torn = joined.where("offset - base < tail and next_offset - base > tail").select("stream").head()
    if torn is not None:
        raise PipelineError(
            f"stream '{torn.stream}' of the target holds something else than the lake; "
            "load into another bucket"
        )
    return joined.where("(next_offset - base > tail) or (closed and not is_closed)").select(
        *("stream", "content_type", "closed", "position", "offset", "next_offset"),
        # Its bytes may be there while its close is not.
        F.when(F.expr("next_offset - base > tail"), F.col("payload")).alias("payload"),
    )


# Both


def _in_order(rows: DataFrame, *order: str) -> DataFrame:
    """A stream's rows in one task, in an order that does not depend on how they got there."""
    return rows.repartition("stream").sortWithinPartitions("stream", *order)


def _write(rows: DataFrame, options: LoadOptions) -> None:
    target = options.target
    writer = rows.write.format("perennial").mode("append").options(url=target.url, bucket=target.bucket)
    writer = writer.options(batchRows=BATCH_ROWS, batchBytes=BATCH_BYTES, grouped=True)
    writer = writer.options(retrySeconds=target.retry_seconds)
    if target.token:
        writer = writer.option("token", target.token)
    if "content_type" not in rows.columns:
        writer = writer.option("contentType", options.content_type)
    writer.save()


def _tails(target: Target) -> dict[str, tuple[int, bool]]:
    with Server(target) as server:
        return {
            found["stream_id"]: (found["tail_offset"], found["status"] == "Closed")
            for found in list_streams(server)
        }


def _summary(
    title: str,
    before: dict[str, tuple[int, bool]],
    after: dict[str, tuple[int, bool]],
    more: dict[str, int] | None = None,
) -> Summary:
    grown = {stream: tail - before.get(stream, (0, False))[0] for stream, (tail, _) in after.items()}
    facts = {
        "streams created": len(after.keys() - before.keys()),
        "streams appended to": sum(size > 0 for size in grown.values()),
        "bytes appended": sum(grown.values()),
    }
    return Summary(title, {**facts, **(more or {})})


def _dry_summary(rows: DataFrame, options: LoadOptions, title: str) -> Summary:
    found = rows.selectExpr("count(*)", "count(distinct stream)", "sum(length(payload))").head()
    assert found is not None, "an aggregate has a row"
    examples = rows.selectExpr("stream", "cast(substring(payload, 1, 60) as string)").limit(3).collect()
    return Summary(
        f"{title} into '{options.target.bucket}'",
        {"rows": found[0], "streams": found[1], "bytes": found[2] or 0},
        ("stream", "payload"),
        [tuple(example) for example in examples],
    )


def _first_line(error: AnalysisException) -> str:
    return str(error).split("\n", 1)[0].split(" SQLSTATE", 1)[0]
