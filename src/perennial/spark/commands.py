"""The command line of the jobs: `perennial pipeline …`."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

import perennial.spark  # noqa: F401 - names this interpreter for Spark's workers, before a session is made
from perennial.spark.errors import PipelineError
from perennial.spark.http import Server
from perennial.spark.jobs.summary import Summary
from perennial.spark.options import Target, make_target, parse_size

app = typer.Typer(
    help="Load, archive, compact and analyse streams with Spark.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Url = Annotated[str, typer.Option(envvar="PERENNIAL_URL", help="The server.")]
Token = Annotated[
    str, typer.Option(envvar="PERENNIAL_TOKEN", help="A service token, if the server wants one.")
]
Bucket = Annotated[str, typer.Option(help="The bucket to work on.")]
Master = Annotated[str, typer.Option(help="Where Spark runs: local[*], spark://host:7077, yarn, k8s://…")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]

LOCAL = "local[*]"
HERE = "http://127.0.0.1:4437"
POLL_SECONDS = 0.2


@app.command()
def load(
    bucket: Bucket,
    path: Annotated[str | None, typer.Option("--from", help="Files that Spark can read.")] = None,
    format: Annotated[str, typer.Option(help="parquet, csv or json.")] = "parquet",
    stream: Annotated[str | None, typer.Option(help="Expression for the stream's name.")] = None,
    payload: Annotated[str | None, typer.Option(help="Expression for the message.")] = None,
    content_type: Annotated[str, typer.Option(help="Of new streams.")] = "application/json",
    from_lake: Annotated[str | None, typer.Option(help="A lake, instead of files.")] = None,
    lake_bucket: Annotated[
        str | None, typer.Option(help="The bucket in the lake. [default: --bucket]")
    ] = None,
    url: Url = HERE,
    token: Token = "",
    master: Master = LOCAL,
    dry_run: DryRun = False,
) -> None:
    """Load a data set, or a lake, into streams. Run twice, loaded once."""

    def job(spark: Any, target: Target) -> Summary:
        from perennial.spark.jobs import load as it

        options = it.LoadOptions(
            target, path, format, stream, payload, content_type, from_lake, lake_bucket, dry_run
        )
        return it.run(spark, options)

    _run("load", job, url, bucket, token, master)


@app.command()
def archive(
    bucket: Bucket,
    lake: Annotated[str, typer.Option(help="Directory of the lake; also hdfs:// or s3a://.")],
    follow: Annotated[bool, typer.Option("--follow", help="Go on as the bucket grows.")] = False,
    url: Url = HERE,
    token: Token = "",
    master: Master = LOCAL,
    dry_run: DryRun = False,
) -> None:
    """Bring a bucket into a Parquet lake: what is new since the last time, exactly once."""

    def job(spark: Any, target: Target) -> Summary:
        from perennial.spark.jobs import archive as it

        return it.run(spark, it.ArchiveOptions(target, lake, follow, dry_run))

    _run("archive", job, url, bucket, token, master)


@app.command()
def compact(
    bucket: Bucket,
    fold: Annotated[str, typer.Option(help="latest-by-key, merge-patch, state, concat or module:function.")],
    key: Annotated[str | None, typer.Option(help="Path of the key in a message: user.id")] = None,
    min_bytes: Annotated[str, typer.Option(help="Streams that grew by so much: 1m")] = "1m",
    prefix: Annotated[str, typer.Option(help="Only streams whose names begin so.")] = "",
    url: Url = HERE,
    token: Token = "",
    master: Master = LOCAL,
    dry_run: DryRun = False,
) -> None:
    """Fold streams that grew into snapshots, so that readers need not replay them."""

    def job(spark: Any, target: Target) -> Summary:
        from perennial.spark.jobs import compact as it

        size = parse_size("--min-bytes", min_bytes)
        return it.run(spark, it.CompactOptions(target, fold, key, size, prefix, dry_run))

    _run("compact", job, url, bucket, token, master)


@app.command()
def responses(
    to: Annotated[str, typer.Option(help="Directory of the table.")],
    bucket: Bucket = "proxy",
    url: Url = HERE,
    token: Token = "",
    master: Master = LOCAL,
    dry_run: DryRun = False,
) -> None:
    """Turn proxied responses into a table: one row each, with tokens and text of model APIs."""

    def job(spark: Any, target: Target) -> Summary:
        from perennial.spark.jobs import responses as it

        return it.run(spark, it.ResponsesOptions(target, to, dry_run))

    _run("responses", job, url, bucket, token, master)


@app.command()
def report(
    bucket: Bucket,
    to: Annotated[str, typer.Option(help="Directory of the page.")],
    url: Url = HERE,
    token: Token = "",
    master: Master = LOCAL,
    dry_run: DryRun = False,
) -> None:
    """Draw how a bucket is used: a page with plots, and a PNG."""

    def job(spark: Any, target: Target) -> Summary:
        from perennial.spark.jobs import report as it

        return it.run(spark, it.ReportOptions(target, to, dry_run))

    _run("report", job, url, bucket, token, master)


# What all of them do


def _run(
    name: str, job: Callable[[Any, Target], Summary], url: str, bucket: str, token: str, master: str
) -> None:
    try:
        target = make_target(url, bucket, token)
        _check_server(target, may_be_missing=name == "load")
        with _session(f"perennial {name}", master) as spark, _progress(spark, name):
            summary = job(spark, target)
    except PipelineError as error:
        typer.echo(f"perennial: {error}", err=True)
        raise typer.Exit(1) from None
    except Exception as error:
        known = _ours_within(error)
        if known is None:
            raise
        typer.echo(f"perennial: {known}", err=True)
        raise typer.Exit(1) from None
    show(summary)


def _check_server(target: Target, may_be_missing: bool) -> None:
    """Before Spark is started, which takes seconds."""
    with Server(target, patience_seconds=0) as server:
        server.request("GET", f"/ds/{target.bucket}", accept=(404,) if may_be_missing else ())


@contextmanager
def _session(name: str, master: str) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in QUIET.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(os.environ.get("PERENNIAL_SPARK_LOG", "OFF"))
    try:
        yield spark
    finally:
        spark.stop()


QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def _progress(spark: Any, name: str) -> Iterator[None]:
    """A bar of Spark's tasks, for as long as the job takes."""
    columns = (
        *(SpinnerColumn(), TextColumn("{task.description}"), BarColumn()),
        *(MofNCompleteColumn(), TextColumn("tasks"), TimeElapsedColumn()),
    )
    console = Console(stderr=True)
    done = threading.Event()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(name, total=None)
        watcher = threading.Thread(target=_watch, args=(spark, progress, bar, done), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _watch(spark: Any, progress: Progress, bar: Any, done: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    seen: dict[int, tuple[int, int]] = {}
    while not done.wait(POLL_SECONDS):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                seen[stage] = (info.numCompletedTasks, info.numTasks)
        for stage in seen.keys() - set(tracker.getActiveStageIds()):
            seen[stage] = (seen[stage][1], seen[stage][1])
        if seen:
            completed, total = (sum(column) for column in zip(*seen.values(), strict=True))
            progress.update(bar, completed=completed, total=total)


def show(summary: Summary) -> None:
    console = Console()
    facts = Table(title=summary.title, title_justify="left", show_header=False, title_style="bold")
    facts.add_column()
    facts.add_column(justify="right")
    for name, value in summary.facts.items():
        facts.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    console.print(facts)
    if summary.rows:
        rows = Table(*summary.columns)
        for row in summary.rows:
            rows.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
        console.print(rows)


def _ours_within(error: Exception) -> str | None:
    """The message of an error of ours that came back wrapped in Spark's words and a Java stack."""
    marker = "perennial.spark.errors."
    text = str(error)
    at = text.rfind(marker)
    if at < 0:
        return None
    return text[at:].split(":", 1)[1].split("\n", 1)[0].strip()
