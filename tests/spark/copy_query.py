"""A streaming query in a process of its own, to be killed: URL SOURCE TARGET CHECKPOINT."""

import sys

from pyspark.sql import SparkSession

import perennial.spark


def main(url: str, source: str, target: str, checkpoint: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    perennial.spark.register(spark)
    query = (
        spark.readStream.format("perennial")
        .options(url=url, bucket=source, maxRowsPerTrigger="500")
        .load()
        .select("stream", "payload", "content_type")
        .writeStream.format("perennial")
        .options(url=url, bucket=target, checkpointLocation=checkpoint)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
