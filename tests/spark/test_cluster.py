"""A standalone cluster on loopback, from the PySpark package alone; one of two workers does not survive."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from perennial.protocol.frames import encode_complete, encode_data, encode_start
from tests.spark import cluster_driver
from tests.spark.conftest import ROOT, environment
from tests.spark.http_calls import Calls
from tests.spark.test_exactly_once import wait_until

SPARK_HOME = Path(pyspark.__file__).parent
ADDRESS = r"Starting Spark master at (spark://\S+)"


@contextmanager
def running(name: str, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process group of our own; all of it ends with the block."""
    own = {
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with (log / f"{name}.log").open("wb") as output:
        process = subprocess.Popen(
            arguments,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment() | own,
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


SPARK_CLASS = str(SPARK_HOME / "bin" / "spark-class")
PLACE = ("--host", "127.0.0.1", "--webui-port", "0")


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A master and two workers: the address of the one, and the first of the others."""
    master = ("org.apache.spark.deploy.master.Master", *PLACE, "--port", "0")
    worker = (
        "org.apache.spark.deploy.worker.Worker",
        *PLACE,
        "-c",
        "1",
        "-m",
        "700m",
        "-d",
        f"{folder}/work",
    )
    with running("master", folder, SPARK_CLASS, *master):
        log = folder / "master.log"
        wait_until(lambda: bool(re.search(ADDRESS, log.read_text())))
        address = re.findall(ADDRESS, log.read_text())[0]
        with (
            running("first", folder, SPARK_CLASS, *worker, address) as first,
            running("second", folder, SPARK_CLASS, *worker, address),
        ):
            wait_until(lambda: log.read_text().count("Registering worker") == 2)
            yield address, first


def record_a_response(calls: Calls) -> None:
    calls.create("r")
    calls.append("r", encode_start(1, 200, {}) + encode_data(1, b"hello"))
    calls.append("r", encode_complete(1))


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_of_a_write(calls: Calls, tmp_path: Path) -> None:
    record_a_response(calls.sibling(f"{calls.bucket}-proxied"))
    with cluster(tmp_path) as (master, first):
        arguments = ("tests.spark.cluster_driver", master, calls.url, calls.bucket, str(tmp_path))
        with running("driver", tmp_path, sys.executable, "-m", *arguments) as driver:
            least = cluster_driver.ROWS // 10
            wait_until(lambda: calls.head_position() >= least or driver.poll() is not None)
            assert calls.head_position() < cluster_driver.ROWS, (
                "the write was over before a worker was killed"
            )
            # Its executor belongs to its group and dies with it; the write goes on with the other.
            kill(first)
            with suppress(subprocess.TimeoutExpired):
                driver.wait(120)
            assert driver.poll() == 0, (tmp_path / "driver.log").read_text()[-3000:]
    again = Calls(calls.url, f"{calls.bucket}-again")
    for number in range(cluster_driver.STREAMS):
        expected = list(range(number, cluster_driver.ROWS, cluster_driver.STREAMS))
        assert sorted(again.messages(f"s-{number}")) == expected
        assert sorted(json.loads(calls.snapshot(f"s-{number}"))) == expected
    assert (tmp_path / "report" / "index.html").exists()
    [response] = pq.read_table(tmp_path / "responses").to_pylist()
    assert (response["stream"], response["body"], response["ended"]) == ("r", b"hello", "complete")
