"""`bucket create`, `bucket show`, `bucket rm` (Perennial only)."""

from typing import Annotated

import typer

from perennial.cli.exits import say
from perennial.cli.options import DEFAULT_URL, Token, Url

Bucket = Annotated[str, typer.Argument(metavar="BUCKET", help="The bucket's id.")]

group = typer.Typer(help="Create, show and delete buckets.", no_args_is_help=True, rich_markup_mode=None)


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="bucket")


@group.command()
def create(bucket: Bucket, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Create a bucket."""
    _ask("PUT", bucket, url, token, 201)
    say(f"created bucket {bucket}")


@group.command()
def show(bucket: Bucket, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Print what the server says of a bucket, as JSON."""
    typer.echo(_ask("GET", bucket, url, token, 200).decode())


@group.command()
def rm(bucket: Bucket, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Delete an empty bucket."""
    _ask("DELETE", bucket, url, token, 204)
    say(f"deleted bucket {bucket}")


def _ask(method: str, bucket: str, url: str, token: str | None, expected: int) -> bytes:
    from perennial.cli.session import Session

    with Session(url, token, bucket) as session:
        reply = session.request(method, session.below_bucket())
        as_json = reply.headers.get("content-type", "").startswith("application/json")
        if reply.status != expected or (method == "GET" and not as_json):
            raise session.not_perennial("about a bucket")
        return reply.body
