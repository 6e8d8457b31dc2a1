"""The command line, in a process of its own: as people run it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import environment
from tests.spark.http_calls import Calls


def pipeline(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perennial", "pipeline", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**environment(), "COLUMNS": "100"},
    )


@pytest.mark.slow
def test_a_job_says_what_it_did(calls: Calls, tmp_path: Path) -> None:
    (tmp_path / "people.json").write_text('{"id": 1, "name": "Ada"}\n{"id": 2, "name": "Grace"}\n')
    done = pipeline(
        *("load", "--url", calls.url, "--bucket", calls.bucket, "--master", "local[1]"),
        *("--from", str(tmp_path / "people.json"), "--format", "json"),
        *("--stream", "concat('person-', id)", "--payload", "to_json(struct(*))"),
    )
    assert done.returncode == 0, done.stderr
    assert "streams created" in done.stdout
    assert calls.messages("person-2") == [{"id": 2, "name": "Grace"}]


@pytest.mark.slow
def test_a_job_that_cannot_run_says_what_to_do() -> None:
    done = pipeline(*("report", "--url", "http://127.0.0.1:9", "--bucket", "agents", "--to", "/tmp/none"))
    assert done.returncode == 1
    assert "Check that the server is running there" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_lists_the_jobs() -> None:
    done = pipeline("--help")
    assert done.returncode == 0
    assert all(job in done.stdout for job in ("load", "archive", "compact", "responses", "report"))


def test_a_bad_option_is_noticed_before_spark_starts() -> None:
    done = pipeline(*("report", "--url", "nowhere", "--bucket", "agents", "--to", "/tmp/none"))
    assert done.returncode == 1
    assert "http://127.0.0.1:4437 would be" in done.stderr
