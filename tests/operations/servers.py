"""Servers as an operator would start them: with a configuration file, tokens, TLS, a Unix socket."""

import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path

import httpx

from perennial.http.access.tokens import hash_token
from tests.harness.server import ServerProcess

SERVICE = "service-token-of-the-tests"
AS_SERVICE = {"Authorization": f"Bearer {SERVICE}"}
TEXT = {"Content-Type": "text/plain"}


class OperatedServer(ServerProcess):
    """`config` is TOML; written beside the data, and again by `configure`."""

    ready_line = re.compile(r"listening on (https?://127\.0\.0\.1:(\d+)|unix:\S+)")

    def __init__(self, directory: Path, config: str = "", env: Mapping[str, str] | None = None) -> None:
        super().__init__(directory / "data", env)
        self._config = directory / "perennial.toml"
        self.configure(config)

    def configure(self, config: str) -> None:
        self._config.write_text(config)

    def command(self) -> list[str]:
        return [*super().command(), "--config", str(self._config)]

    def hang_up(self, answer: str = "reload") -> None:
        """SIGHUP, and wait until the log tells what became of it."""
        before = self.output.count(answer)
        os.kill(self.pid, signal.SIGHUP)
        self.wait_for(lambda: self.output.count(answer) > before)

    def client(self, token: str | None = None, **options: object) -> httpx.Client:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=10, **options)  # type: ignore[arg-type]


def token_config(name: str, scopes: list[str], **more: object) -> str:
    """A `[[tokens]]` entry for the token `secret-of-<name>`."""
    lines = [
        "[[tokens]]",
        f'name = "{name}"',
        f'hash = "{hash_token(f"secret-of-{name}")}"',
        f"scopes = {scopes}",
        *(f"{key} = {value!r}" for key, value in more.items()),
    ]
    return "\n".join(lines) + "\n"
