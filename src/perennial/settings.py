"""Settings: flags, then `PERENNIAL_*` variables, then the TOML file, then defaults; one frozen value."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

# Settings that are comma-separated in their variable.
LISTS: Final = ("auth_tokens", "proxy_secret", "proxy_allow")


class SettingsError(Exception):
    """A setting that cannot be used; the message says which, where it came from and what is expected."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Each field is also `PERENNIAL_<NAME>` and a key of the TOML file."""

    host: str = "127.0.0.1"
    port: int = 4437
    data: str = "./data"
    auth_tokens: tuple[str, ...] = ()
    insecure: bool = False
    long_poll_timeout: float = 20.0
    sse_max_age: float = 60.0
    max_body: int = 64 * 1024 * 1024
    max_chunk: int = 1024 * 1024
    max_snapshot: int = 256 * 1024 * 1024
    # The first secret signs URLs, all of them verify. None: a random one is kept in the data directory.
    proxy_secret: tuple[str, ...] = ()
    proxy_allow: tuple[str, ...] = ()
    proxy_allow_private: bool = False
    proxy_url_ttl: int = 3600
    proxy_max_url_ttl: int = 7 * 86400
    proxy_header_timeout: float = 60.0
    proxy_idle_timeout: float = 600.0
    proxy_max_upstreams: int = 1000

    def __post_init__(self) -> None:
        for name, least in (("long_poll_timeout", 0), ("sse_max_age", 0), ("max_body", 1), ("max_chunk", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}")
        for name in ("url_ttl", "max_url_ttl", "header_timeout", "idle_timeout", "max_upstreams"):
            if not getattr(self, f"proxy_{name}") > 0:
                raise ValueError(f"proxy_{name} must be greater than 0")
        if not 0 <= self.port <= 65535:
            raise ValueError("port must be between 0 and 65535")


def load_settings(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Settings:
    """`flags` holds only what was given on the command line."""
    values: dict[str, Any] = {}
    if config is not None:
        values.update(_from_file(config))
    values.update(_from_environment(os.environ if environment is None else environment))
    values.update(flags or {})
    try:
        return msgspec.convert(values, Settings, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise SettingsError(f"bad setting: {error}") from error


def _from_file(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from error
    unknown = sorted(set(values) - set(Settings.__struct_fields__))
    if unknown:
        raise SettingsError(f"{path} has settings nobody reads: {', '.join(unknown)}")
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in Settings.__struct_fields__:
        text = environment.get(f"PERENNIAL_{name.upper()}")
        if text is not None:
            values[name] = (
                [part.strip() for part in text.split(",") if part.strip()] if name in LISTS else text
            )
    return values
