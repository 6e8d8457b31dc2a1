"""What the benchmarks need beside Python: the reference server's packages, wrk, and a compiled SSE client."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.errors import BenchmarkError

HOME = Path(__file__).parent
BUILD = HOME / "build"
REFERENCE_PACKAGE = "@durable-streams/server"


def ensure_reference() -> None:
    """Install the pinned reference server into `node_modules/`, unless that very version is there."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise BenchmarkError("The reference server needs Node.js 20 or later, with npm. Install them.")
    if _installed_reference() != reference_version():
        run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"], cwd=HOME)


def reference_version() -> str:
    """The exact version that `package.json` pins."""
    manifest = json.loads((HOME / "package.json").read_text())
    return str(manifest["dependencies"][REFERENCE_PACKAGE])


def _installed_reference() -> str | None:
    manifest = HOME / "node_modules" / REFERENCE_PACKAGE / "package.json"
    return str(json.loads(manifest.read_text())["version"]) if manifest.exists() else None


def ensure_wrk() -> None:
    """Install wrk if it is missing and we may."""
    ensure_command("wrk", ["wrk"])


def ensure_sse_client() -> Path:
    """Compile `ssefan.c` if it is newer than its program; return the program."""
    source, program = HOME / "ssefan.c", BUILD / "ssefan"
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return program
    ensure_command("gcc", ["gcc", "libc6-dev"])
    BUILD.mkdir(exist_ok=True)
    run(["gcc", "-O2", "-Wall", "-Wextra", "-pthread", "-o", str(program), str(source)])
    return program


def ensure_command(command: str, packages: Sequence[str]) -> None:
    """Install Debian packages for a missing command when running as root; otherwise say what to install."""
    if shutil.which(command) is not None:
        return
    wanted = " ".join(packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise BenchmarkError(f"`{command}` is missing. On Debian: sudo apt-get install {wanted}")
    run(["apt-get", "update"])
    run(["apt-get", "install", "--yes", "--no-install-recommends", *packages])


def run(command: Sequence[str], cwd: Path | None = None) -> str:
    """Run a command to its end and return what it printed; its own words are the error if it fails."""
    finished = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        words = (finished.stderr or finished.stdout).strip()
        raise BenchmarkError(f"`{' '.join(command)}` failed with status {finished.returncode}:\n{words}")
    return finished.stdout
