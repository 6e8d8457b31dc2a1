"""`token create`, `token list`, `token revoke`: the `[[tokens]]` of a TOML file, which a server reads at its
start and again on SIGHUP. A token is shown once; the file keeps its hash only."""

import json
import re
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from perennial.cli.exits import Code, die, say
from perennial.cli.options import AsJson

Config = Annotated[
    Path, typer.Option("--config", "-c", envvar="PERENNIAL_CONFIG", help="The server's TOML file.")
]
TokenName = Annotated[str, typer.Argument(metavar="NAME", help="What it is called in the file and in logs.")]


class Scope(StrEnum):
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"
    METRICS = "metrics"


group = typer.Typer(
    help="Create, list and revoke access tokens.", no_args_is_help=True, rich_markup_mode=None
)


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="token")


@group.command()
def create(
    name: TokenName,
    scopes: Annotated[
        list[Scope] | None,
        typer.Option("--scope", "-s", help="What it is good for; can be given many times. [default: read]"),
    ] = None,
    buckets: Annotated[
        list[str] | None, typer.Option("--bucket", "-b", help="Only in this bucket; can be given many times.")
    ] = None,
    prefix: Annotated[str, typer.Option(help="Only streams whose names begin so.")] = "",
    config: Config = Path("perennial.toml"),
) -> None:
    """Make a token and print it. It is not kept anywhere: only its hash is."""
    from perennial.http.access.tokens import hash_token, new_token

    before, known = _load(config, may_be_missing=True)
    if name in [token["name"] for token in known]:
        die(f"{config} has a token called {name} already", Code.CONFLICT, f"perennial token revoke {name}")
    token = new_token()
    lines = [
        "[[tokens]]",
        f"name = {json.dumps(name)}",
        f"hash = {json.dumps(hash_token(token))}",
        f"scopes = {json.dumps(list(dict.fromkeys(scopes or [Scope.READ])))}",
    ]
    if buckets:
        lines.append(f"buckets = {json.dumps(buckets)}")
    if prefix:
        lines.append(f"prefix = {json.dumps(prefix)}")
    separator = "\n" if before.endswith("\n") else "\n\n" if before else ""
    _save(config, before + separator + "\n".join(lines) + "\n", len(known) + 1)
    typer.echo(token)
    say(f"{config} has its hash; a running server takes it in on SIGHUP")


@group.command("list")
def list_(as_json: AsJson = False, config: Config = Path("perennial.toml")) -> None:
    """List tokens: names, scopes and where they hold. The tokens themselves are not known."""
    _, known = _load(config)
    for token in known:
        shown = {key: value for key, value in token.items() if key != "hash"}
        if as_json:
            typer.echo(json.dumps(shown))
            continue
        where = ",".join(shown.get("buckets", ["all buckets"]))
        prefix = f" {shown['prefix']}*" if shown.get("prefix") else ""
        typer.echo(f"{shown['name']:20} {','.join(shown['scopes']):20} {where}{prefix}")


@group.command()
def revoke(name: TokenName, config: Config = Path("perennial.toml")) -> None:
    """Take a token out of the file."""
    before, known = _load(config)
    if name not in [token["name"] for token in known]:
        die(f"{config} has no token called {name}", Code.NOT_FOUND)
    # Cut by hand, so that everything else in the file stays as someone wrote it, comments and all.
    kept = [part for part in _tables(before) if _token_name(part) != name]
    _save(config, "".join(kept), len(known) - 1)
    say(f"revoked {name}; a running server notices on SIGHUP")


def _tables(text: str) -> list[str]:
    """The file in pieces, each beginning with the head of a table (the first: with whatever comes before)."""
    return re.split(r"(?m)^(?=[ \t]*[\[#])", text)


def _token_name(part: str) -> str | None:
    if not re.match(r"[ \t]*\[\[[ \t]*tokens[ \t]*\]\]", part):
        return None
    try:
        found: dict[str, Any] = tomllib.loads(part)["tokens"][0]
    except (tomllib.TOMLDecodeError, KeyError):
        return None  # a value that goes over several lines; _save notices that nothing was cut
    return str(found.get("name"))


def _load(config: Path, may_be_missing: bool = False) -> tuple[str, list[dict[str, Any]]]:
    try:
        text = config.read_text()
    except FileNotFoundError:
        if not may_be_missing:
            die(f"there is no {config}", Code.NOT_FOUND, "--config says where it is")
        text = ""
    except OSError as error:
        die(f"cannot read {config}: {error.strerror}")
    return text, _parse(config, text)


def _parse(config: Path, text: str) -> list[dict[str, Any]]:
    try:
        tokens: list[dict[str, Any]] = tomllib.loads(text).get("tokens", [])
    except tomllib.TOMLDecodeError as error:
        die(f"{config} is not valid TOML: {error}")
    return tokens


def _save(config: Path, text: str, expected: int) -> None:
    if len(_parse(config, text)) != expected:
        die(f"cannot edit {config} safely: please change its [[tokens]] by hand")
    new = config.with_name(f"{config.name}.new")
    try:
        new.touch(mode=0o600)
        new.write_text(text)
        if config.exists():
            new.chmod(config.stat().st_mode & 0o777)
        new.replace(config)
    except OSError as error:
        die(f"cannot write {config}: {error.strerror}")
