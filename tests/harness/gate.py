"""A server whose disk obeys the test: it can be held back, made to fail, or cut off from power."""

import os
import random
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.harness.server import ServerProcess

PATIENCE_SECONDS = 20.0


class GatedServer(ServerProcess):
    """`perennial serve` under `gated_serve`, which documents the commands."""

    def __init__(self, data: Path, env: Mapping[str, str] | None = None) -> None:
        super().__init__(data, env)
        self._link: socket.socket | None = None

    def command(self) -> list[str]:
        launcher = Path(__file__).with_name("gated_serve.py")
        return [sys.executable, str(launcher), *super().command()[3:]]

    def start(self) -> Self:
        # Not below `data`: the path of a Unix socket may have a hundred characters, pytest's are longer.
        directory = Path(tempfile.mkdtemp(prefix="gate-"))
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(str(directory / "control"))
            listener.listen()
            listener.settimeout(PATIENCE_SECONDS)
            self.env |= {"SYNC_CONTROL": str(directory / "control"), "SYNC_LOG": str(self._sync_log)}
            super().start()
            self._link, _ = listener.accept()
            self._link.settimeout(PATIENCE_SECONDS)
        finally:
            listener.close()
            shutil.rmtree(directory)
        return self

    # What the test tells the disk

    def hold(self) -> None:
        self._tell("hold")

    def release(self) -> None:
        self._tell("release")

    def fail(self) -> None:
        self._tell("fail")

    def wait_until_held(self) -> None:
        """A sync has begun since `hold` and stands still."""
        self._expect("held")

    def cut_power(self, chance: random.Random) -> None:
        """As `kill`, but of the log only what was synced is sure to survive, and of the rest any beginning.

        Only the newest log: RocksDB syncs a log itself before it depends on a newer one.
        """
        self.kill()
        synced: dict[str, int] = {}
        for line in self._sync_log.read_text().splitlines():
            path, _, size = line.rpartition(" ")
            synced[path] = int(size)
        log = max((self.data / "wal").glob("*.log"), key=lambda path: int(path.stem))
        sure = synced.get(str(log.resolve()), 0)
        os.truncate(log, chance.choice([sure, chance.randint(sure, max(sure, log.stat().st_size))]))

    # Internals

    @property
    def _sync_log(self) -> Path:
        return self.data.with_name(self.data.name + "-synced")

    def _tell(self, command: str) -> None:
        assert self._link is not None, "not running"
        self._link.sendall(f"{command}\n".encode())
        self._expect("done")

    def _expect(self, word: str) -> None:
        """Wait for this report; others that come before it are left behind."""
        assert self._link is not None, "not running"
        heard = b""
        while not heard.endswith(f"{word}\n".encode()):
            data = self._link.recv(1)
            assert data, f"the server ended\n{self.output}"
            heard += data

    def _end(self, how: signal.Signals) -> int | None:
        if self._link is not None:
            self._link.close()
            self._link = None
        return super()._end(how)
