"""A standalone cluster on loopback, from the PySpark package alone; one of two workers does not survive."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.spark import cluster_driver
from tests.spark.conftest import ROOT
from tests.spark.http_calls import Calls
from tests.spark.test_exactly_once import wait_until

SPARK_HOME = Path(pyspark.__file__).parent


@contextmanager
def running(name: str, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process group of our own; all of it ends with the block."""
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with (log / f"{name}.log").open("wb") as output:
        process = subprocess.Popen(
            arguments,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_of_a_write(calls: Calls, tmp_path: Path) -> None:
    spark_class = str(SPARK_HOME / "bin" / "spark-class")
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    place = ("--host", "127.0.0.1", "--webui-port", "0")
    worker = (
        "org.apache.spark.deploy.worker.Worker",
        *place,
        "-c",
        "1",
        "-m",
        "700m",
        "-d",
        str(tmp_path / "work"),
    )
    with (
        running(
            "master",
            tmp_path,
            spark_class,
            "org.apache.spark.deploy.master.Master",
            *place,
            "--port",
            str(port),
        ),
        running("first", tmp_path, spark_class, *worker, master) as first,
        running("second", tmp_path, spark_class, *worker, master),
    ):
        log = tmp_path / "master.log"
        wait_until(lambda: len(re.findall("Registering worker", log.read_text())) == 2)
        module = "tests.spark.cluster_driver"
        arguments = (module, master, calls.url, calls.bucket, str(tmp_path))
        with running("driver", tmp_path, sys.executable, "-m", *arguments) as driver:
            least = cluster_driver.ROWS // 10
            wait_until(lambda: calls.head_position() >= least or driver.poll() is not None)
            assert calls.head_position() < cluster_driver.ROWS, (
                "the write was over before a worker was killed"
            )
            kill(first)
            # Its executor belongs to its group and dies with it; the write goes on with the other.
            waiting = threading.Thread(target=driver.wait)
            waiting.start()
            waiting.join(120)
            output = (tmp_path / "driver.log").read_text()
            assert driver.poll() == 0, output[-3000:]
    again = Calls(calls.url, f"{calls.bucket}-again")
    for number in range(cluster_driver.STREAMS):
        expected = list(range(number, cluster_driver.ROWS, cluster_driver.STREAMS))
        assert sorted(again.messages(f"s-{number}")) == expected
        assert sorted(json.loads(calls.snapshot(f"s-{number}"))) == expected
    assert (tmp_path / "report" / "index.html").exists()
