"""How a command ends. Scripts can rely on the codes, people on the sentence."""

from enum import IntEnum
from typing import NoReturn

import typer


class Code(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2  # what typer itself answers to options it does not know
    NOT_FOUND = 3  # no such stream, bucket or snapshot, or no longer
    CONFLICT = 4  # it is there and different, closed, or fenced
    UNREACHABLE = 5  # no server answers
    DENIED = 6  # a token is missing, unknown, or not meant for this
    UNAVAILABLE = 7  # too much, or the server's disk is full: later may be better


class Trouble(Exception):
    """The command cannot do what it was asked. `hint` is what the person could try."""

    def __init__(self, code: Code, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


def die(message: str, code: Code = Code.FAILED, hint: str = "") -> NoReturn:
    raise Trouble(code, message, hint)


def report(trouble: Trouble) -> None:
    say(f"perennial: {trouble.message}")
    if trouble.hint:
        say(f"  {trouble.hint}")


def say(text: str) -> None:
    """To the person; data alone goes to standard output."""
    typer.echo(text, err=True)
