"""The command as a script uses it: arguments and input in; output, talk and an exit code out."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO, NamedTuple

PATIENCE_SECONDS = 60


class Ended(NamedTuple):
    code: int
    out: bytes
    err: str


class Command:
    """`perennial` against one server, in a directory of its own."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PERENNIAL_")}
        return inherited | {"PERENNIAL_URL": self.url, "COLUMNS": "100"}

    def __call__(self, *arguments: object, stdin: bytes = b"") -> Ended:
        ended = subprocess.run(
            [sys.executable, "-m", "perennial", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            cwd=self.directory,
            env=self.environment,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr.decode())

    def ok(self, *arguments: object, stdin: bytes = b"") -> bytes:
        ended = self(*arguments, stdin=stdin)
        assert ended.code == 0, ended
        return ended.out

    def begin(self, *arguments: object, stdout: int | IO[bytes] = subprocess.PIPE) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "perennial", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            cwd=self.directory,
            env=self.environment,
        )
