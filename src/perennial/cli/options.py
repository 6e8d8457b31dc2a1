"""Options and arguments that many commands share."""

from typing import Annotated, Any

import typer

DEFAULT_URL = "http://127.0.0.1:4437"


def _complete_name(context: typer.Context, incomplete: str) -> list[str]:
    """Names of streams on the server, for the shell; nothing if it does not answer quickly."""
    from perennial.cli.session import suggest_names

    given = context.params
    return suggest_names(given.get("url") or DEFAULT_URL, given.get("token"), given.get("bucket"), incomplete)


def _stream(metavar: str) -> Any:
    return typer.Argument(
        metavar=metavar,
        help="A stream's name, a path that begins with '/', or a whole URL.",
        autocompletion=_complete_name,
    )


Name = Annotated[str, _stream("NAME")]
Source = Annotated[str, _stream("SOURCE")]
Url = Annotated[
    str,
    typer.Option(
        "--url",
        "-u",
        envvar="PERENNIAL_URL",
        help="The server; unix:PATH for one on a Unix socket.",
        show_default=True,
    ),
]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="PERENNIAL_TOKEN", help="Sent as a bearer token.", show_default=False),
]
Bucket = Annotated[
    str | None,
    typer.Option(
        "--bucket", "-b", envvar="PERENNIAL_BUCKET", help="The bucket the stream lives in (Perennial only)."
    ),
]
ContentType = Annotated[
    str | None, typer.Option("--content-type", "-t", help="Content type, for a stream that is created.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
