import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import ROOT, environment


@pytest.mark.slow
def test_the_tour_runs_to_its_end(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "pipeline" / "tour.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=180,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "It is all in" in done.stdout
    assert (tmp_path / "report" / "report.png").exists()
