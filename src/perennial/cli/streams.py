"""`create`, `head`, `ls`, `close`, `rm`, `fork`: one request each, or a few."""

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from perennial.cli.exits import Code, Trouble, die, report, say
from perennial.cli.options import DEFAULT_URL, AsJson, Bucket, ContentType, Name, Source, Token, Url

if TYPE_CHECKING:
    from perennial.cli.session import Reply, Session

PAGE = 1000


def register(app: typer.Typer) -> None:
    for command in (create, head, ls, close, rm, fork):
        app.command()(command)


def _session(url: str, token: str | None, bucket: str | None) -> "Session":
    from perennial.cli.session import Session

    return Session(url, token, bucket)


def create(
    name: Name,
    content_type: ContentType = None,
    ttl: Annotated[
        int | None, typer.Option(min=0, help="Seconds without reads or writes until it goes.")
    ] = None,
    expires_at: Annotated[str | None, typer.Option(help="When it goes, as in 2030-01-31T12:00:00Z.")] = None,
    data: Annotated[str | None, typer.Option("--data", "-d", help="First content.")] = None,
    closed: Annotated[bool, typer.Option("--closed", help="Closed from the start.")] = False,
    new: Annotated[bool, typer.Option("--new", help="Fail if it exists already.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    bucket: Bucket = None,
) -> None:
    """Create a stream. One that exists with the same configuration is left as it is."""
    headers = {"content-type": content_type or "application/octet-stream"}
    if ttl is not None:
        headers["stream-ttl"] = str(ttl)
    if expires_at is not None:
        headers["stream-expires-at"] = expires_at
    if closed:
        headers["stream-closed"] = "true"
    with _session(url, token, bucket) as session:
        address = session.stream(name)
        reply = session.request("PUT", address, headers, os.fsencode(data or ""))
        if reply.status == 200:
            session.expect_stream(address, reply)
    if reply.status != 201:
        if new:
            die(f"{name} exists already", Code.CONFLICT)
        say(f"{name} exists already, as asked for")
    else:
        say(f"created {name}")


def head(
    name: Name,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    bucket: Bucket = None,
) -> None:
    """Show what the server says of a stream, without its content."""
    with _session(url, token, bucket) as session:
        address = session.stream(name)
        found = session.expect_stream(address, session.request("HEAD", address)).headers
    facts: dict[str, Any] = {
        "content_type": found.get("content-type"),
        "next_offset": found.get("stream-next-offset"),
        "closed": found.get("stream-closed", "").lower() == "true",
        "ttl_seconds": int(found["stream-ttl"]) if "stream-ttl" in found else None,
        "expires_at": found.get("stream-expires-at"),
        "etag": found.get("etag"),
    }
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for key, value in facts.items():
        if value is not None:
            shown = str(value).lower() if isinstance(value, bool) else value
            typer.echo(f"{key.replace('_', '-'):13} {shown}")


def ls(
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Only names that begin so.")] = "",
    long: Annotated[bool, typer.Option("--long", "-l", help="A table with types, sizes and times.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    bucket: Bucket = None,
) -> None:
    """List the streams of a bucket, one per line (Perennial only)."""
    rows: list[dict[str, Any]] = []
    after = ""
    with _session(url, token, bucket) as session:
        while True:
            query = f"limit={PAGE}&prefix={quote(os.fsencode(prefix), '')}&after={quote(after, '')}"
            page = _page(session, session.request("GET", f"{session.below_bucket('streams')}?{query}"))
            if long:
                rows += page["streams"]
            else:
                for row in page["streams"]:
                    typer.echo(json.dumps(row) if as_json else _listed(row["stream_id"]))
            if not page["has_more"]:
                break
            after = page["next_cursor"]
    if long and as_json:
        typer.echo(json.dumps(rows))
    elif long:
        _print_table(rows)


def _page(session: "Session", reply: "Reply") -> dict[str, Any]:
    try:
        page: dict[str, Any] = json.loads(reply.body)
        _ = page["streams"], page["has_more"]
    except (ValueError, KeyError, TypeError):
        raise session.not_perennial("a list of streams") from None
    return page


def _listed(name: str) -> str | bytes:
    # As bytes: from text that goes into a pipe, echo takes what looks like a terminal's commands.
    return _shown(name) if sys.stdout.isatty() else name.encode()


def _shown(name: str) -> str:
    """Anyone may have made this name, and a terminal obeys control characters."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in name)


def _print_table(rows: list[dict[str, Any]]) -> None:
    from datetime import UTC, datetime

    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_edge=False)
    for title, side in (("name", "left"), ("status", "left"), ("type", "left"), ("bytes", "right")):
        table.add_column(title, justify=side, overflow="fold")  # type: ignore[arg-type]
    table.add_column("last write")
    for row in rows:
        at = datetime.fromtimestamp(row["last_write_at_ms"] / 1000, UTC)
        table.add_row(
            _shown(row["stream_id"]),
            row["status"].lower(),
            row["content_type"],
            str(row["tail_offset"]),
            f"{at:%Y-%m-%d %H:%M:%S}",
        )
    # Into a pipe, a table is as wide as it needs to be.
    Console(width=None if sys.stdout.isatty() else 1000, highlight=False, markup=False).print(table)


def close(
    name: Name,
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="Last words, appended as it closes.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    bucket: Bucket = None,
) -> None:
    """Close a stream. It can be read for ever, and never written again."""
    with _session(url, token, bucket) as session:
        address = session.stream(name)
        headers = {"stream-closed": "true"}
        if data is not None:
            found = session.expect_stream(address, session.request("HEAD", address))
            headers["content-type"] = found.headers["content-type"]
        reply = session.request("POST", address, headers, os.fsencode(data or ""))
        tail = session.expect_stream(address, reply).headers["stream-next-offset"]
    say(f"closed {name} at {tail}")


def rm(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Streams to delete.")],
    force: Annotated[bool, typer.Option("--force", "-f", help="One that is not there is fine.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    bucket: Bucket = None,
) -> None:
    """Delete streams and all that is in them."""
    last: Trouble | None = None
    with _session(url, token, bucket) as session:
        for name in names:
            try:
                gone = _delete(session, session.stream(name), force)
            except Trouble as trouble:
                # The others are still asked for; the last failure decides the exit code.
                if last is not None:
                    report(last)
                last = Trouble(trouble.code, f"{name}: {trouble.message}", trouble.hint)
                if trouble.code == Code.UNREACHABLE:
                    break
            else:
                say(f"deleted {name}" if gone else f"{name} was not there")
    if last is not None:
        raise last


def _delete(session: "Session", address: str, force: bool) -> bool:
    """False if it was not there, and that is fine."""
    reply = session.request("DELETE", address, accept=(200, 204, 404, 410) if force else (200, 204))
    if reply.status == 200:  # as many a web server says of anything
        die(f"{session.shown(address)} is not a stream: deleting one is answered with 204", Code.NOT_FOUND)
    return reply.status == 204


def fork(
    source: Source,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new stream.")],
    offset: Annotated[
        str | None, typer.Option(help="Where the fork leaves its source. [default: at its tail]")
    ] = None,
    sub_offset: Annotated[int | None, typer.Option(min=0, help="Messages beyond that offset.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    bucket: Bucket = None,
) -> None:
    """Make a stream that begins as another one. Nothing is copied."""
    with _session(url, token, bucket) as session:
        headers = {"stream-forked-from": session.path(source)}
        if offset is not None:
            headers["stream-fork-offset"] = offset
        if sub_offset is not None:
            headers["stream-fork-sub-offset"] = str(sub_offset)
        address = session.stream(name)
        reply = session.expect_stream(address, session.request("PUT", address, headers))
    say(f"{name} goes on from {source} at {reply.headers['stream-next-offset']}")
