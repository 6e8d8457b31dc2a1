"""A short soak: all kinds of load at once, the server killed in every round, every promise compared."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_twenty_seconds_of_everything_break_no_invariant() -> None:
    command = [sys.executable, "-m", "benchmarks.soak", "--seconds", "18", "--kill-every", "6"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stderr[-5000:]
    assert ended.stdout.endswith("no invariant broken\n"), ended.stdout
