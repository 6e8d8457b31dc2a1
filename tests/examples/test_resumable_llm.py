"""The example does what its README says."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.server import ServerProcess

HOME = Path(__file__).parents[2] / "examples" / "resumable_llm"


@pytest.fixture
def model() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(HOME / "upstream.py"), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.terminate()


def test_a_cut_off_answer_is_resumed_without_loss_or_repeat(
    model: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert model.stdout is not None
    found = re.search(r"http://127\.0\.0\.1:\d+", model.stdout.readline())
    assert found is not None
    settings = {"PERENNIAL_PROXY_ALLOW": f"{found[0]}/**", "PERENNIAL_PROXY_ALLOW_PRIVATE": "true"}
    with ServerProcess(tmp_path / "data", settings) as server:

        def client(*words: str) -> subprocess.CompletedProcess[str]:
            urls = ["--proxy", f"{server.url}/v1/proxy", "--model", f"{found[0]}/v1/answer"]
            return subprocess.run(
                [sys.executable, str(HOME / "client.py"), *urls, *words],
                cwd=tmp_path,
                env=dict(os.environ),
                capture_output=True,
                text=True,
                timeout=60,
            )

        cut = client("ask", "Why is the sky blue?", "--cut-after", "12")
        assert cut.returncode == 1
        assert (tmp_path / "bookmark.json").stat().st_mode & 0o777 == 0o600
        rest = client("resume")
        assert rest.returncode == 0, rest.stderr
        again = client("resume")
        assert (again.returncode, again.stdout) == (1, "")
        assert again.stderr == "there is nothing to resume: no answer was cut off here\n"
        told = cut.stdout.partition("[")[0].split() + rest.stdout.split()

    answer = re.search(r"ANSWER = \((.*?)\n\)", (HOME / "upstream.py").read_text(), re.DOTALL)
    assert answer is not None
    assert told == eval(f"({answer[1]})").split()
    assert not (tmp_path / "bookmark.json").exists()
    model.terminate()
    assert model.stdout.read().count("call ") == 1
