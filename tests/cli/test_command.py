"""The command as a whole: its start, its completion, its tokens, and who it shares no directory with."""

import subprocess
import sys
import time
import tomllib
from pathlib import Path

from perennial.cli.exits import Code
from tests.cli.run import Command
from tests.harness.server import ServerProcess

HEAVY = ("aiohttp", "msgspec", "numpy", "pyarrow", "pyspark", "rich", "rocksdict", "uvloop")


def test_help_comes_quickly(tmp_path: Path) -> None:
    perennial = Command("", tmp_path)
    perennial.ok("--help")
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        perennial.ok("--help")
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.5, seconds


def test_help_loads_nothing_that_a_command_may_need() -> None:
    code = f"import sys, perennial.cli; print([name for name in {HEAVY!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert loaded == "[]\n"


def test_every_command_explains_itself(tmp_path: Path) -> None:
    perennial = Command("", tmp_path)
    listed = perennial.ok("--help").decode().partition("Commands:")[2].partition("Exit codes")[0]
    commands = [line.split()[0] for line in listed.splitlines() if line[:2] == "  " and line[2:3].isalpha()]
    assert {"serve", "ls", "create", "append", "read", "tail", "head", "close", "rm", "snapshot"} <= {
        *commands
    }
    assert {"bootstrap", "fork", "bench", "token", "check", "backup", "restore", "pipeline"} <= {*commands}
    for command in set(commands) - {"pipeline"}:
        assert len(perennial.ok(command, "--help")) > 100


def test_completion_for_shells(tmp_path: Path) -> None:
    perennial = Command("", tmp_path)
    script = subprocess.run(
        [sys.executable, "-m", "perennial", "--show-completion", "bash"],
        capture_output=True,
        text=True,
        env=perennial.environment | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        check=False,
    )
    assert "_COMPLETE" in script.stdout, script


def test_names_of_streams_are_completed(perennial: Command, name: str) -> None:
    perennial.ok("create", name)
    words = f"perennial read {name[:-2]}"
    ended = subprocess.run(
        [sys.executable, "-c", "from perennial.cli import app; app(prog_name='perennial')"],
        capture_output=True,
        text=True,
        env=perennial.environment
        | {"_PERENNIAL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "2"},
        check=False,
    )
    assert name in ended.stdout, ended


def test_a_second_server_on_the_same_directory_is_refused(server: ServerProcess) -> None:
    ended = Command("", server.data.parent)("serve", "--port", 0, "--data", server.data)
    assert ended.code == Code.FAILED
    assert f"{server.data} is in use by another process" in ended.err
    assert "Traceback" not in ended.err
    assert Command(server.url, server.data.parent)("ls").code == Code.OK, "the first one is not disturbed"


def test_a_port_in_use_is_told(server: ServerProcess, tmp_path: Path) -> None:
    ended = Command("", tmp_path)("serve", "--port", server.port, "--data", tmp_path / "other")
    assert ended.code == Code.FAILED
    assert str(server.port) in ended.err


def test_pipeline_says_what_to_install(tmp_path: Path) -> None:
    blocked = "import sys; sys.modules['pyspark'] = None; sys.modules['perennial.spark'] = None"
    code = f"{blocked}; sys.argv = ['perennial', 'pipeline', 'load']; from perennial.cli import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == Code.FAILED
    assert "perennial[spark]" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_tokens_are_made_listed_and_revoked(tmp_path: Path) -> None:
    perennial = Command("", tmp_path)
    file = tmp_path / "perennial.toml"
    file.write_text('# ours\nhost = "127.0.0.1"\n\n[quotas.agents]\nstreams = 5\n')
    token = perennial.ok("token", "create", "reader").decode().strip()
    perennial.ok("token", "create", "writer", "-s", "read", "-s", "write", "-b", "agents", "--prefix", "a/")
    assert perennial("token", "create", "reader").code == Code.CONFLICT
    assert token not in file.read_text()
    assert [entry["scopes"] for entry in tomllib.loads(file.read_text())["tokens"]] == [
        ["read"],
        ["read", "write"],
    ]
    listed = perennial.ok("token", "list").decode()
    assert "reader" in listed
    assert "agents a/*" in listed
    assert (
        perennial("token", "revoke", "reader").err == "revoked reader; a running server notices on SIGHUP\n"
    )
    assert perennial("token", "revoke", "reader").code == Code.NOT_FOUND
    left = file.read_text()
    assert left.startswith("# ours\n")
    assert tomllib.loads(left)["quotas"] == {"agents": {"streams": 5}}
    assert [entry["name"] for entry in tomllib.loads(left)["tokens"]] == ["writer"]


def test_a_server_takes_the_tokens_it_was_given(tmp_path: Path) -> None:
    perennial = Command("", tmp_path)
    reader = perennial.ok("token", "create", "reader").decode().strip()
    writer = perennial.ok("token", "create", "writer", "-s", "read", "-s", "write").decode().strip()

    with ServerProcess(tmp_path / "data", {"PERENNIAL_CONFIG": str(tmp_path / "perennial.toml")}) as server:
        perennial.url = server.url
        assert perennial("create", "s").code == Code.DENIED
        assert perennial("create", "s", "--token", reader).code == Code.DENIED
        assert perennial("create", "s", "--token", writer).code == Code.OK
        assert perennial("read", "s", "--token", reader).code == Code.OK
        assert perennial("backup", server.url, "copy", "--token", writer).code == Code.DENIED


def test_closed_streams_mean_nothing_to_read_and_nowhere_to_write(shared_server: ServerProcess) -> None:
    def run(words: str) -> tuple[int, str]:
        command = f"exec {sys.executable} -m perennial {words} --url {shared_server.url}"
        ended = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
        return ended.returncode, ended.stderr

    assert run("create closed-streams -d abc >&-")[0] == Code.OK
    assert run("append closed-streams <&-") == (Code.OK, "appended 0 messages to closed-streams\n")
    assert run("read closed-streams >&-") == (Code.OK, "")
