"""A tour of the pipeline: start a server, load a data set, tail it, archive it, compact it, report on it.

    python examples/pipeline/tour.py [FOLDER]

Everything it makes is in FOLDER (default: a temporary one, whose name it prints).
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

import perennial.spark
from perennial.spark.commands import show
from perennial.spark.jobs import archive, compact, load, report
from perennial.spark.options import make_target

USERS = 20
EVENTS = 5_000


def main(folder: Path) -> None:
    with serving(folder / "data") as url:
        spark = start_spark()
        target = make_target(url, "shop")

        step("a data set: one JSON object per line")
        write_events(folder / "events.json")

        step("load it: a stream per user")
        options = load.LoadOptions(
            target,
            path=str(folder / "events.json"),
            format="json",
            stream="concat('user-', user)",
            payload="to_json(struct(*))",
        )
        show(load.run(spark, options))

        step("tail the bucket with a streaming query")
        events = (
            spark.readStream.format("perennial")
            .options(url=url, bucket="shop", jsonSchema="action string, amount double")
            .load()
        )
        totals = events.groupBy("action").sum("amount")
        query = totals.writeStream.format("memory").queryName("totals").outputMode("complete")
        query.trigger(availableNow=True).start().awaitTermination()
        spark.table("totals").orderBy("action").show()

        step("archive it to a Parquet lake, and look at the lake with plain Spark")
        show(archive.run(spark, archive.ArchiveOptions(target, str(folder / "lake"))))
        spark.read.parquet(str(folder / "lake")).groupBy("bucket", "date").count().show()

        step("draw how the bucket is used")
        show(report.run(spark, report.ReportOptions(target, str(folder / "report"))))

        step("compact: each user's streams become the last event of every action")
        show(compact.run(spark, compact.CompactOptions(target, "latest-by-key", "action", min_bytes=1_000)))
        spark.stop()
    print(f"\nIt is all in {folder}; open {folder / 'report' / 'index.html'}")


def start_spark() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    # By default Spark cuts what it sorts into 200 parts, which is meant for more than fits a tour.
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    perennial.spark.register(spark)
    return spark


def step(title: str) -> None:
    print(f"\n== {title}", flush=True)


def write_events(path: Path) -> None:
    with path.open("w") as lines:
        for number in range(EVENTS):
            action = ("view", "cart", "buy")[number % 7 % 3]
            event = {"id": number, "user": number % USERS, "action": action, "amount": number % 97 + 0.5}
            print(json.dumps(event), file=lines)


@contextmanager
def serving(data: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "perennial", "serve", "--port", "0", "--data", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None, "opened as a pipe"
        try:
            yield next(
                found[1] for line in server.stdout if (found := re.search(r"listening on (\S+)", line))
            )
        finally:
            server.terminate()
            server.communicate()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="perennial-tour-")))
