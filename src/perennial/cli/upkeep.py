"""`check`, `backup`, `restore`: is a store whole, and how to have a second one.

A backup is a directory that could be served as it is, with a list of its files and their hashes beside them
(`backup.json`). It holds everything that was acknowledged before the backup began, and whole commits only.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perennial.cli.exits import Code, die, say
from perennial.cli.options import AsJson, Token

if TYPE_CHECKING:
    from perennial.service.checking import Report

Verify = Annotated[bool, typer.Option("--check/--no-check", help="Check the copy as `perennial check` does.")]


def register(app: typer.Typer) -> None:
    for command in (check, backup, restore):
        app.command()(command)


def check(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A data directory or a backup.")],
    as_json: AsJson = False,
) -> None:
    """Tell whether a store is whole. Everything is read; no server may have it open."""
    report = _examine(directory)
    if as_json:
        import msgspec

        typer.echo(msgspec.json.encode(report).decode())
    else:
        for problem in report.problems:
            typer.echo(problem)
        _summarise(report)
    if report.problems:
        die(f"{directory} is damaged: {_count(len(report.problems), 'problem')}", hint="restore a backup")


def backup(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A server's URL (or unix:PATH), or a stopped one's data directory."
        ),
    ],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A directory that does not exist yet.")],
    token: Token = None,
    verify: Verify = True,
) -> None:
    """Copy all that a server holds while it goes on serving. It is as of its last commit."""
    from perennial.cli.backups import fetch, take_offline
    from perennial.client.address import SCHEMES

    _refuse_existing(target)
    if source.lower().startswith(SCHEMES):
        size = fetch(source, token, target)
    else:
        _refuse_missing(Path(source), f"the URL of a server begins with {', '.join(SCHEMES)}")
        _refuse_unwritable(Path(source), "back it up as the user it belongs to")
        size = take_offline(Path(source), target)
    say(f"backed up {size:,} bytes to {target}")
    if verify:
        _verify(target)


def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="A directory made by `perennial backup`.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The new data directory.")],
    verify: Verify = True,
) -> None:
    """Make a data directory out of a backup. Every byte is compared with the backup's list."""
    from perennial.cli.backups import copy_back

    _refuse_existing(directory)
    if not (source / "backup.json").is_file():
        die(f"{source} is not a backup: it has no backup.json", Code.NOT_FOUND)
    size = copy_back(source, directory)
    say(f"restored {size:,} bytes to {directory}")
    if verify:
        _verify(directory)


def _verify(directory: Path) -> None:
    report = _examine(directory)
    if report.problems:
        for problem in report.problems:
            say(problem)
        die(f"{directory} is not whole; what it was made from should be checked as well")
    _summarise(report, err=True)


def _examine(directory: Path) -> "Report":
    from perennial.cli.backups import is_in_use
    from perennial.service.checking import Checker
    from perennial.store.errors import StoreError
    from perennial.store.rocks import RocksStore

    _refuse_missing(directory)
    if is_in_use(directory):
        die(f"{directory} is in use by another process", hint="stop it, or check a backup of it")
    _refuse_unwritable(directory, "check it as the user it belongs to; restoring a backup checks it, too")
    try:
        store = RocksStore(directory, read_only=True)
    except StoreError as error:
        die(str(error))
    try:
        return Checker(store).run()
    finally:
        store.close()


def _summarise(report: "Report", err: bool = False) -> None:
    parts = [
        _count(report.streams, "stream"),
        _count(report.messages, "message"),
        f"{report.bytes:,} bytes",
        _count(report.snapshots, "snapshot"),
        _count(report.producers, "producer"),
        _count(report.buckets, "bucket"),
    ]
    typer.echo(f"checked {', '.join(parts)} (change {report.changes}): ", nl=False, err=err)
    typer.echo("whole" if not report.problems else _count(len(report.problems), "problem"), err=err)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _refuse_missing(directory: Path, hint: str = "") -> None:
    if not (directory / "rocks" / "CURRENT").exists():
        die(f"there is no store in {directory}", Code.NOT_FOUND, hint)


def _refuse_unwritable(directory: Path, hint: str) -> None:
    # RocksDB's driver writes a note of its own beside the tables, also when it opens them for reading only.
    if not os.access(directory / "rocks", os.W_OK):
        die(f"cannot write to {directory}, and its store cannot be opened without", hint=hint)


def _refuse_existing(target: Path) -> None:
    if target.is_mount():
        # It gets its name at the end, and a mount point cannot be renamed to: better said before than after.
        die(f"{target} is a mount point", hint=f"choose a directory on it, such as {target / 'data'}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        die(f"{target} exists already", Code.CONFLICT, "nothing is ever overwritten: choose another name")
