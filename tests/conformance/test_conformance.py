"""The public conformance suite, whole, against a started server: our own connections, then ASGI."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness.server import AsgiServerProcess, ServerProcess

HERE = Path(__file__).parent
VITEST = HERE / "node_modules" / "vitest" / "vitest.mjs"

# Without the optional subscriptions. Fewer passing would mean that the suite did not run whole.
EXPECTED_TESTS = 332

# The suite wants the answer to an idle long-poll within its own limit of five seconds.
SETTINGS = {"PERENNIAL_LONG_POLL_TIMEOUT": "2"}

# How long one test may take where it does not say so itself: other tests share the machine with it.
PATIENCE_MS = 20_000


def run_suite(url: str, report: Path, reporter: str) -> dict[str, Any]:
    node = shutil.which("node")
    if node is None or not VITEST.exists():
        pytest.fail("the suite is not installed: run `make install`")
    reporters = [f"--reporter={reporter}", "--reporter=json", f"--outputFile.json={report}"]
    subprocess.run(
        [node, VITEST, "run", *reporters, f"--testTimeout={PATIENCE_MS}"],
        cwd=HERE,
        env=os.environ | {"CONFORMANCE_URL": url},
        timeout=300,
        check=False,  # the report says more than the exit code
    )
    outcome: dict[str, Any] = json.loads(report.read_text())
    return outcome


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ServerProcess, AsgiServerProcess], ids=["native", "asgi"])
def test_public_suite_passes(kind: type[ServerProcess], tmp_path: Path, pytestconfig: pytest.Config) -> None:
    reporter = "verbose" if pytestconfig.get_verbosity() > 0 else "dot"
    with kind(tmp_path / "data", SETTINGS) as server:
        outcome = run_suite(server.url, tmp_path / "report.json", reporter)

    tests = [test for file in outcome["testResults"] for test in file["assertionResults"]]
    failed = [test["fullName"] for test in tests if test["status"] == "failed"]
    passed = sum(test["status"] == "passed" for test in tests)
    if failed:
        print(server.output)  # the suite's client retries server errors: a 500 looks like a timeout there
        pytest.fail(f"{len(failed)} tests failed:\n  " + "\n  ".join(failed), pytrace=False)
    assert passed >= EXPECTED_TESTS, f"only {passed} tests ran"
