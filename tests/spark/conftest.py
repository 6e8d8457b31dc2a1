"""Real Spark against a real server. One session for all tests here: starting a JVM takes seconds."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.server import ServerProcess
from tests.spark.http_calls import Calls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            # Spark's own, about pandas and about sockets it leaves to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


# Runs are short: compiling well would take longer than running badly.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# Workers find the sources that tests define, and start without compiling Spark's Python.
PYTHONPATH = os.pathsep.join([str(Path(__file__).parent / "workers"), str(ROOT)])


def environment() -> dict[str, str]:
    """For processes that start a Spark of their own."""
    quick = {"JAVA_TOOL_OPTIONS": QUICK_JVM, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": PYTHONPATH}
    return {**os.environ, **quick}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    os.environ["PYTHONPATH"] = PYTHONPATH
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    own = tmp_path_factory.mktemp("spark")
    from pyspark.sql import SparkSession

    import perennial.spark

    builder = SparkSession.builder.master("local[2,4]")  # two cores, and a task may fail three times
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        # Tests may run in several processes at once, each with its session.
        "spark.local.dir": str(own / "local"),
        "spark.sql.warehouse.dir": str(own / "warehouse"),
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    perennial.spark.register(session)
    yield session
    session.stop()


@pytest.fixture
def calls(shared_server: ServerProcess) -> Calls:
    """A bucket nobody else uses, on the shared server."""
    return new_bucket(shared_server)


def new_bucket(server: ServerProcess) -> Calls:
    calls = Calls(server.url, f"b-{uuid.uuid4().hex[:12]}")
    calls.create_bucket()
    return calls
