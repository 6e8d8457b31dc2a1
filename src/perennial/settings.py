"""Settings: flags, then `PERENNIAL_*` variables, then the TOML file, then defaults; one frozen value.

Each field carries its own description: `scripts/settings-table` turns them into `docs/settings.md`, and a
test compares the two.
"""

import logging
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

KIB: Final = 1024
MIB: Final = 1024 * KIB

Scope = Literal["read", "write", "admin", "metrics"]


class SettingsError(Exception):
    """A setting that cannot be used; the message says which, where it came from and what is expected."""


class TokenSetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[tokens]]` of the TOML file. Only the hash of a token is ever written down."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    hash: Annotated[str, msgspec.Meta(pattern="^sha256:[0-9a-f]{64}$")]
    scopes: Annotated[tuple[Scope, ...], msgspec.Meta(min_length=1)]
    # None: every bucket except `proxy`, which has to be named.
    buckets: tuple[str, ...] | None = None
    prefix: str = ""


class QuotaSetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[quotas.<bucket>]` of the TOML file; 0 is no limit."""

    streams: Annotated[int, msgspec.Meta(ge=0)] = 0
    bytes: Annotated[int, msgspec.Meta(ge=0)] = 0


def _doc(section: str, text: str, **constraints: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, extra={"section": section}, **constraints)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Each field is also `PERENNIAL_<NAME>` and a key of the TOML file."""

    host: Annotated[str, _doc("Listening", "Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, _doc("Listening", "Port to listen on; 0 picks a free one.", ge=0, le=65535)] = 4437
    unix_socket: Annotated[
        str, _doc("Listening", "Path of a Unix socket to listen on instead of `host` and `port`.")
    ] = ""
    tls_cert: Annotated[
        str, _doc("Listening", "PEM file with the certificate chain; read again on SIGHUP.")
    ] = ""
    tls_key: Annotated[str, _doc("Listening", "PEM file with the certificate's private key.")] = ""
    trusted_proxies: Annotated[
        tuple[str, ...],
        _doc(
            "Listening",
            "Addresses or networks (`10.0.0.0/8`, or `unix` for peers on the Unix socket) whose `Forwarded`, "
            "`X-Forwarded-For` and `X-Forwarded-Proto` headers are believed.",
        ),
    ] = ()
    data: Annotated[str, _doc("Listening", "Directory of the store.")] = "./data"

    auth_tokens: Annotated[
        tuple[str, ...], _doc("Access", "Service tokens with full access (`Authorization: Bearer …`).")
    ] = ()
    tokens: Annotated[
        tuple[TokenSetting, ...],
        _doc("Access", "`[[tokens]]` with `name`, `hash`, `scopes`, `buckets`, `prefix`: see security.md."),
    ] = ()
    jwt_secret: Annotated[str, _doc("Access", "Shared secret of HS256 bearer JWTs, 32 bytes or more.")] = ""
    jwt_keys: Annotated[
        str, _doc("Access", "File with the key of bearer JWTs: a PEM public key (RSA, Ed25519) or a JWKS.")
    ] = ""
    jwt_audience: Annotated[str, _doc("Access", "The `aud` a JWT must have, if given.")] = ""
    jwt_issuer: Annotated[str, _doc("Access", "The `iss` a JWT must have, if given.")] = ""
    insecure: Annotated[
        bool, _doc("Access", "Allow another address than loopback without any access control.")
    ] = False

    long_poll_timeout: Annotated[float, _doc("Reading", "Seconds a long-poll waits.", ge=0)] = 20.0
    sse_max_age: Annotated[
        float, _doc("Reading", "Seconds until an SSE connection is ended for its client to reconnect.", ge=0)
    ] = 60.0
    max_chunk: Annotated[int, _doc("Reading", "Bytes of data in one read.", ge=1)] = MIB
    compression: Annotated[
        bool, _doc("Reading", "Compress catch-up reads (zstd or gzip) for clients that accept it.")
    ] = True

    max_body: Annotated[int, _doc("Limits", "Bytes of a request's body (413).", ge=1)] = 64 * MIB
    max_snapshot: Annotated[int, _doc("Limits", "Bytes of a published snapshot (413).", ge=1)] = 256 * MIB
    max_url: Annotated[int, _doc("Limits", "Bytes of a request target (414).", ge=64)] = 8 * KIB
    max_headers: Annotated[int, _doc("Limits", "Bytes of a request's headers (431).", ge=16 * KIB)] = 32 * KIB
    max_connections: Annotated[
        int,
        _doc(
            "Limits",
            "Open connections; more are answered 503. Never more than the process may have open files.",
            ge=1,
        ),
    ] = 20_000
    max_live_readers: Annotated[
        int, _doc("Limits", "Long-polls, SSE and feed readers at a time; more are answered 503.", ge=1)
    ] = 20_000
    rate_requests: Annotated[
        float, _doc("Limits", "Requests per second of one identity (429); 0 is no limit.", ge=0)
    ] = 0.0
    rate_bytes: Annotated[
        float, _doc("Limits", "Bytes per second, in and out, of one identity (429); 0 is no limit.", ge=0)
    ] = 0.0
    bucket_max_streams: Annotated[int, _doc("Limits", "Streams in a bucket (507); 0 is no limit.", ge=0)] = 0
    bucket_max_bytes: Annotated[
        int, _doc("Limits", "Bytes of data and snapshots kept in a bucket (507); 0 is no limit.", ge=0)
    ] = 0
    quotas: Annotated[
        dict[str, QuotaSetting],
        _doc("Limits", "`[quotas.<bucket>]` with `streams` and `bytes`, instead of the two above."),
    ] = {}

    access_log: Annotated[
        bool, _doc("Observability", "One JSON line on standard output for every request.")
    ] = False
    otel_endpoint: Annotated[
        str,
        _doc(
            "Observability",
            "OTLP/HTTP address of an OpenTelemetry collector (`http://127.0.0.1:4318`) that gets a span of "
            "every request; needs `perennial[otel]`.",
        ),
    ] = ""

    # The first secret signs URLs, all of them verify. None: a random one is kept in the data directory.
    proxy_secret: Annotated[
        tuple[str, ...],
        _doc("Proxy", "Secrets of pre-signed URLs: the first signs, all verify. Random if not given."),
    ] = ()
    proxy_allow: Annotated[
        tuple[str, ...], _doc("Proxy", "URL patterns of allowed upstreams; empty: every upstream is refused.")
    ] = ()
    proxy_allow_private: Annotated[
        bool, _doc("Proxy", "Let loopback, private and link-local addresses be upstreams.")
    ] = False
    proxy_url_ttl: Annotated[int, _doc("Proxy", "Seconds a pre-signed URL is good for.", gt=0)] = 3600
    proxy_max_url_ttl: Annotated[int, _doc("Proxy", "The most seconds a request may ask for.", gt=0)] = (
        7 * 86400
    )
    proxy_header_timeout: Annotated[
        float, _doc("Proxy", "Seconds until an upstream must have begun to answer.", gt=0)
    ] = 60.0
    proxy_idle_timeout: Annotated[
        float, _doc("Proxy", "Seconds an upstream may be silent while it answers.", gt=0)
    ] = 600.0
    proxy_max_upstreams: Annotated[
        int, _doc("Proxy", "Responses one caller may have in flight (429).", gt=0)
    ] = 1000

    def __post_init__(self) -> None:
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("tls_cert and tls_key come together")
        if self.otel_endpoint and not self.otel_endpoint.startswith(("http://", "https://")):
            raise ValueError("otel_endpoint must begin with http:// or https://")
        names = [token.name for token in self.tokens]
        if len(set(names)) != len(names):
            raise ValueError("two tokens have the same name")

    def __repr__(self) -> str:
        """Without secrets: a settings object may end up in a log."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        hidden = {name: "[redacted]" for name in SECRETS if shown[name]}
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in (shown | hidden).items())})"

    @property
    def guarded(self) -> bool:
        """Is anyone asked who they are?"""
        return bool(self.auth_tokens or self.tokens or self.jwt_secret or self.jwt_keys)


# Settings that are comma-separated in variables, that nobody must see, and that only the file can express.
LISTS: Final = ("auth_tokens", "proxy_secret", "proxy_allow", "trusted_proxies")
SECRETS: Final = ("auth_tokens", "jwt_secret", "proxy_secret")
FILE_ONLY: Final = ("tokens", "quotas")

# Read when it is in the working directory and no other file is named.
DEFAULT_CONFIG: Final = Path("perennial.toml")

# Variables of the `perennial` command that are no settings.
OF_THE_CLIENT: Final = ("url", "token", "bucket", "config")

KINDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "array": "a list",
}


def load_settings(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Settings:
    """`flags` holds only what was given on the command line."""
    variables = os.environ if environment is None else environment
    sources = (
        (f"{config}: ", str.lower, {} if config is None else _from_file(config)),
        ("PERENNIAL_", str.upper, _from_environment(variables)),
        ("--", str.lower, flags or {}),
    )
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for place, spelling, found in sources:
        values.update(found)
        origins.update({name: place + spelling(name) for name in found})
    _warn_of_misspellings(variables)
    try:
        return msgspec.convert(values, Settings, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise SettingsError(f"bad setting{_explain(str(error), origins)}") from error


def checked(settings: Settings) -> Settings:
    """What was made in code, held to what a file is held to: a constructor takes anything, and a token given
    as text instead of a list of texts would make a token of each of its letters."""
    try:
        return msgspec.convert(msgspec.to_builtins(settings, enc_hook=os.fspath), Settings)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise SettingsError(f"bad setting{_explain(str(error), {})}") from error


def find_config(given: Path | None = None) -> Path | None:
    """The TOML file to read: the one given, the one `PERENNIAL_CONFIG` names, or `perennial.toml` if it is
    here."""
    if given is not None:
        return given
    if named := os.environ.get("PERENNIAL_CONFIG"):
        return Path(named)
    return DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None


def _explain(complaint: str, origins: Mapping[str, str]) -> str:
    """Where it came from and what is expected, in words."""
    for kind, words in KINDS.items():
        complaint = complaint.replace(f"`{kind}`", words)
    located = re.fullmatch(r"(?s)(.*) - at `\$\.(\w+)(.*)`", complaint)
    if located is None:
        return f": {complaint}"
    what, name, inside = located.groups()
    return f" {origins.get(name, name)}{inside}: {what}"


def _warn_of_misspellings(variables: Mapping[str, str]) -> None:
    """A warning and no more: container platforms make up variables out of the names of services."""
    for variable in sorted(variables):
        name = variable.removeprefix("PERENNIAL_").lower()
        if variable.startswith("PERENNIAL_") and name not in (*Settings.__struct_fields__, *OF_THE_CLIENT):
            logging.getLogger("perennial").warning("%s is not a setting, and is ignored", variable)


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
        text = None if name in FILE_ONLY else environment.get(f"PERENNIAL_{name.upper()}")
        if text is not None:
            values[name] = (
                [part.strip() for part in text.split(",") if part.strip()] if name in LISTS else text
            )
    return values
