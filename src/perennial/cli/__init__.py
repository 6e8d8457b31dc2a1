"""The `perennial` command.

Module map: one file per group of commands, and what they share.

- `serving`   serve
- `streams`   create, head, ls, close, rm, fork: one request each
- `appending` append: files, standard input, lines; sent again when in doubt, stored once
- `reading`   read and tail
- `snapshots` snapshot, bootstrap
- `buckets`   bucket create, show, rm
- `bench`     bench: a small load and a table
- `tokens`    token create, list, revoke
- `upkeep`    check, backup, restore
- `pipeline`  hands over to Spark, if it is installed
- `session`   one server and how to address what is on it
- `reaching`  why a server cannot be reached, and what to do about it
- `exits`     exit codes, and the one way a command fails
- `options`   options that many commands share

Data goes to standard output, talk to standard error. A module imports what it needs inside its commands:
`perennial --help` must not wait for a database it will not open.
"""

import os
import sys
from typing import Annotated

import typer

import perennial
from perennial.cli import (
    appending,
    bench,
    buckets,
    pipeline,
    reading,
    serving,
    snapshots,
    streams,
    tokens,
    upkeep,
)
from perennial.cli.exits import Code, Trouble, report

app = typer.Typer(
    help="Perennial: durable streams over HTTP.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=(
        "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 conflict, 5 no connection, "
        "6 not allowed, 7 the server cannot do it now."
    ),
)

for group in (
    serving, streams, appending, reading, snapshots, buckets, bench, tokens, upkeep, pipeline,
):  # fmt: skip
    group.register(app)


def main() -> None:
    _stand_in_for_closed_streams()
    try:
        app()
    except Trouble as trouble:
        report(trouble)
        sys.exit(trouble.code)
    except OSError as error:  # of our own output: a pipe that broke was typer's business already
        report(Trouble(Code.FAILED, f"cannot go on: {error}"))
        sys.exit(Code.FAILED)


def _stand_in_for_closed_streams() -> None:
    """`<&-` and `>&-` leave us no stream at all. They mean: nothing to read, nowhere to write."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (for as long as the command runs)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        typer.echo(f"perennial {perennial.__version__}")
        raise typer.Exit
