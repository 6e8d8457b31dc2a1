"""The driver of the cluster test: MASTER URL BUCKET FOLDER. Writes, then runs every job.

BUCKET-proxied holds what a proxy has recorded.
"""

import sys

from pyspark.sql import SparkSession

import perennial.spark
from perennial.spark.jobs import archive, compact, load, report, responses
from perennial.spark.options import make_target

ROWS = 20_000
STREAMS = 20


def main(master: str, url: str, bucket: str, folder: str) -> None:
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    for key, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "600m",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    perennial.spark.register(spark)
    rows = spark.range(0, ROWS, 1, 8).selectExpr(
        f"concat('s-', id % {STREAMS}) as stream", "string(id) as payload"
    )
    write = rows.write.format("perennial").options(url=url, bucket=bucket, contentType="application/json")
    write.options(batchRows="20", connections="2").mode("append").save()
    print("written", flush=True)
    target = make_target(url, bucket)
    archive.run(spark, archive.ArchiveOptions(target, f"{folder}/lake"))
    again = make_target(url, f"{bucket}-again")
    load.run(spark, load.LoadOptions(again, lake=f"{folder}/lake", lake_bucket=bucket))
    report.run(spark, report.ReportOptions(target, f"{folder}/report"))
    compact.run(spark, compact.CompactOptions(target, "concat", min_bytes=1))
    proxied = make_target(url, f"{bucket}-proxied")
    responses.run(spark, responses.ResponsesOptions(proxied, f"{folder}/responses"))
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
