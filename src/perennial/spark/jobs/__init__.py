"""The jobs of the pipeline, one per file, each with `run(spark, options)` for notebooks and other programs.

load        files or a lake into streams          archive    a bucket into a Parquet lake
compact     streams into snapshots                responses  proxied responses into a table
report      the usage of a bucket as a page
"""
