"""A small crowd of live readers, so that `python -m benchmarks.live` runs when it is needed."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_a_crowd_that_is_sent_home_every_second_misses_nothing_and_hears_nothing_twice(
    tmp_path: Path,
) -> None:
    crowd = ["--connections", "300", "--streams", "30", "--rate", "100"]
    time = ["--seconds", "4", "--idle", "0", "--max-age", "1"]
    command = [sys.executable, "-m", "benchmarks.live", *crowd, *time, "--data", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-5000:]
    assert "4,000 of 4,000" in ended.stdout, ended.stdout
    reconnected = next(line for line in ended.stdout.splitlines() if "opened again" in line)
    assert int(reconnected.split("│")[2].replace(",", "")) >= 300, "everybody came back at least once"
    assert ended.stdout.endswith("no drop, none twice, all in order\n"), ended.stdout
