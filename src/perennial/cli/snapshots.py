"""`snapshot` and `bootstrap` (Perennial only)."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perennial.cli.exits import Code, die, say
from perennial.cli.options import DEFAULT_URL, Bucket, Name, Token, Url

if TYPE_CHECKING:
    from perennial.cli.session import Reply, Session


def register(app: typer.Typer) -> None:
    app.command()(snapshot)
    app.command()(bootstrap)


def snapshot(
    name: Name,
    publish: Annotated[
        Path | None, typer.Option("--publish", "-p", help="Publish this file (- for standard input).")
    ] = None,
    offset: Annotated[
        str | None, typer.Option("--offset", "-o", help="The snapshot stands for everything before it.")
    ] = None,
    content_type: Annotated[
        str | None, typer.Option("--content-type", "-t", help="Content type of the published snapshot.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    bucket: Bucket = None,
) -> None:
    """Print a stream's latest snapshot, or publish one. What lies before its offset is then obsolete."""
    from perennial.cli.session import Session

    with Session(url, token, bucket) as session:
        if publish is None:
            found = session.request("GET", session.part_of(name, "snapshot"), accept=(200, 307))
            if found.status == 307:
                found = session.request("GET", session.part_of(name, "snapshot", _offset_of(session, found)))
            offset = _offset_of(session, found)
            _write(found.body)
            say(f"snapshot at offset {offset}")
            return
        if offset is None:
            die("say with --offset what the snapshot stands for", Code.USAGE, "perennial head shows the tail")
        content = _read(publish)
        kind = content_type or "application/octet-stream"
        address = session.part_of(name, "snapshot", offset)
        _offset_of(session, session.request("PUT", address, {"content-type": kind}, content))
        say(f"published {len(content)} bytes as the snapshot of {name} at {offset}")


def bootstrap(
    name: Name,
    directory: Annotated[
        Path | None,
        typer.Option("--into", "-i", help="Write `snapshot` and `messages` into this directory instead."),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    bucket: Bucket = None,
) -> None:
    """Print the latest snapshot and all that was appended since.

    It is one consistent view. Messages of JSON streams are printed one per line.
    """
    from perennial.cli.session import Session

    with Session(url, token, bucket) as session:
        reply = session.request("GET", session.part_of(name, "bootstrap"))
        if "stream-snapshot-offset" not in reply.headers:
            raise session.not_perennial("a bootstrap")
    parts = _parts(reply.headers["content-type"], reply.body)
    folded, updates = parts[0][1], [_ended(kind, body) for kind, body in parts[1:]]
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "snapshot").write_bytes(folded)
        (directory / "messages").write_bytes(b"".join(updates))
    else:
        _write(b"".join([_ended(parts[0][0], folded) if folded else b"", *updates]))
    say(_summary(reply.headers["stream-snapshot-offset"], len(updates), reply.headers["stream-next-offset"]))


def _offset_of(session: "Session", reply: "Reply") -> str:
    """Ends the command if the answer is not about a snapshot."""
    offset = reply.headers.get("stream-snapshot-offset")
    if offset is None:
        raise session.not_perennial("about a snapshot")
    return offset


def _summary(snapshot: str, messages: int, next_offset: str) -> str:
    count = f"{messages} message{'' if messages == 1 else 's'}"
    told = f"no snapshot, {count}" if snapshot == "-1" else f"snapshot at {snapshot}, {count} since"
    return f"{told}; tail from {next_offset}"


def _parts(content_type: str, body: bytes) -> list[tuple[str, bytes]]:
    """(content type, content) of each part. Cut by hand: a mail parser would touch line endings."""
    boundary = content_type.partition("boundary=")[2].strip('"').encode()
    parts = []
    for part in (b"\r\n" + body).split(b"\r\n--" + boundary)[1:]:
        if part.startswith(b"--"):
            break
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        kinds = [
            line for line in head.decode("latin-1").split("\r\n") if line.lower().startswith("content-type:")
        ]
        parts.append((kinds[0].partition(":")[2].strip() if kinds else "", content))
    return parts


def _ended(kind: str, content: bytes) -> bytes:
    is_json = kind.partition(";")[0].strip().lower() == "application/json"
    return content.rstrip(b"\n") + b"\n" if is_json else content


def _read(path: Path) -> bytes:
    import sys

    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
    except OSError as error:
        die(f"cannot read {path}: {error.strerror}", Code.USAGE)


def _write(content: bytes) -> None:
    import sys

    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
