"""A real server process to test against: started, killed, stopped and restarted on one data directory."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

START_SECONDS = 30.0
STOP_SECONDS = 30.0


class ServerProcess:
    """`perennial serve` on a free loopback port, ready for connections once `start` has returned.

    The port is read from the line the server prints when it listens, so nothing sleeps and nothing polls. It
    outlives restarts: clients may hold on to `url`. Settings come from `env` alone; the caller's own
    `PERENNIAL_*` variables are not inherited.
    """

    # What the process prints, anywhere in a line, when it is ready.
    ready_line = re.compile(r"listening on (http://127\.0\.0\.1:(\d+))")

    # How it may end when asked to.
    clean_exits: tuple[int, ...] = (0,)

    def __init__(self, data: Path, env: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.env = dict(env or {})
        self.url = ""
        self.port = 0  # 0 until the first start
        self.log: list[str] = []  # standard output and error, line by line, over all restarts
        self._grown = threading.Condition()  # told of every line
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def command(self) -> list[str]:
        address = ["--host", "127.0.0.1", "--port", str(self.port)]
        return [sys.executable, "-m", "perennial", "serve", *address, "--data", str(self.data)]

    # Lifecycle

    def start(self) -> Self:
        assert self._process is None, "already running"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PERENNIAL_")}
        # An empty file: the caller's perennial.toml does not count either.
        settings = {"PERENNIAL_DATA": str(self.data), "PERENNIAL_CONFIG": os.devnull, **self.env}
        self._process = subprocess.Popen(
            self.command(),
            env=inherited | {"PYTHONUNBUFFERED": "1"} | settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        settled = threading.Event()
        self.url = ""
        self._reader = threading.Thread(target=self._read, args=(self._process, settled), daemon=True)
        self._reader.start()
        settled.wait(START_SECONDS)
        if not self.url:
            self.kill()
            raise RuntimeError(f"the server did not start\n{self.output}")
        return self

    def kill(self) -> None:
        """End the process at once, as a crash would: nothing is flushed, nobody is told."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask the process to end, and check that it did so in order."""
        code = self._end(signal.SIGTERM)
        assert code is None or code in self.clean_exits, f"the server ended with code {code}\n{self.output}"

    def restart(self) -> None:
        """Stop unless already stopped or killed, and start again on the same data and port."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.kill()  # whatever failed inside is the story; a bad ending would only cover it

    # Observation

    @property
    def pid(self) -> int:
        assert self._process is not None, "not running"
        return self._process.pid

    @property
    def output(self) -> str:
        return "".join(self.log)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Until the server's output makes the condition true."""
        with self._grown:
            assert self._grown.wait_for(condition, STOP_SECONDS), f"waited in vain\n{self.output}"

    # Internals

    def _read(self, process: subprocess.Popen[str], settled: threading.Event) -> None:
        assert process.stdout is not None, "opened as a pipe by start"
        for line in process.stdout:
            with self._grown:
                self.log.append(line)
                self._grown.notify_all()
            if not settled.is_set() and (found := self.ready_line.search(line)):
                self.url, self.port = found[1], int(found[2] or 0)
                settled.set()
        settled.set()  # it ended; if that was before it listened, `url` is still empty

    def _end(self, how: signal.Signals) -> int | None:
        process, reader = self._process, self._reader
        if process is None or reader is None:
            return None
        self._process = self._reader = None
        with process:  # closes the pipe
            process.send_signal(how)
            try:
                code = process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            reader.join()
        return code


class SocketServerProcess(ServerProcess):
    """`perennial serve` on a Unix socket; `url` is `unix:` and its path.

    The path must be short: the kernel takes about a hundred bytes, which `tmp_path` may have already.
    """

    ready_line = re.compile(r"listening on (unix:\S+)()")

    def __init__(self, data: Path, path: Path, env: Mapping[str, str] | None = None) -> None:
        super().__init__(data, {"PERENNIAL_UNIX_SOCKET": str(path), **(env or {})})
        self.path = path


class AsgiServerProcess(ServerProcess):
    """The ASGI application served by uvicorn, to the same contract."""

    ready_line = re.compile(r"running on (http://127\.0\.0\.1:(\d+))")
    clean_exits = (0, -signal.SIGTERM)  # having shut down in order, uvicorn lets the signal have its way

    def command(self) -> list[str]:
        address = ["--host", "127.0.0.1", "--port", str(self.port)]
        return [sys.executable, "-m", "uvicorn", "--factory", "perennial.asgi:create_app", *address]
