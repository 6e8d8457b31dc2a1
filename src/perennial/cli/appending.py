"""`append`: files, standard input or lines, as an idempotent producer.

Everything is sent with a producer id and a running number, so a piece whose answer was lost is sent again and
still stored once. With an id of your own (`--producer`) that also holds for the command as a whole: the
pieces are cut by fixed rules, so running it again with the same input adds only what is missing.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perennial.cli.exits import Code, Trouble, die, say
from perennial.cli.options import DEFAULT_URL, Bucket, ContentType, Name, Token, Url

if TYPE_CHECKING:
    from perennial.cli.session import Reply, Session


def register(app: typer.Typer) -> None:
    app.command()(append)


def append(
    name: Name,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Files to append; - or none: standard input."),
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option("--data", "-d", help="Append this; can be given many times.")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", "-l", help="Each line is a message.")] = False,
    create: Annotated[
        bool, typer.Option("--create", "-c", help="Create the stream if it is not there.")
    ] = False,
    content_type: ContentType = None,
    close: Annotated[bool, typer.Option("--close", help="Close the stream afterwards.")] = False,
    producer: Annotated[
        str | None,
        typer.Option(help="Your own producer id: the same input sent again with it is stored once."),
    ] = None,
    epoch: Annotated[
        int, typer.Option(min=0, help="The producer's session; a higher one fences lower ones.")
    ] = 0,
    progress: Annotated[
        bool | None, typer.Option(help="Show a progress bar. [default: for large inputs, on a terminal]")
    ] = None,
    retry: Annotated[float, typer.Option(min=0, help="Seconds to try again when the server fails.")] = 30.0,
    url: Url = DEFAULT_URL,
    token: Token = None,
    bucket: Bucket = None,
) -> None:
    """Append to a stream. A retry never doubles anything."""
    from perennial.cli.pieces import Pieces
    from perennial.cli.progress import watching
    from perennial.cli.session import Session

    if data and files:
        die("give --data or files, not both", Code.USAGE)
    for path in files or []:
        if str(path) != "-" and not path.exists():
            die(f"no such file: {path}", Code.USAGE)
        if path.is_dir():
            die(f"{path} is a directory", Code.USAGE)
    with Session(url, token, bucket) as session:
        kind = _prepare(session, name, content_type, create, retry)
        sender = Sender(session, name, kind, producer, epoch, retry)
        pieces = Pieces(kind, files or [], data or [], lines, steady=producer is not None)
        with watching(pieces.total_bytes, progress) as advance:
            for piece in pieces:
                sender.send(piece.body)
                sender.messages += piece.messages
                advance(piece.size)
        if close:
            sender.close()
    say(f"appended {sender.summary} to {name}")


def _prepare(session: "Session", name: str, content_type: str | None, create: bool, patience: float) -> str:
    """The stream's content type; creates the stream if asked to."""
    url = session.stream(name)
    found = _look(session, url, patience)
    if found.status == 404:
        if not create:
            die(f"there is no stream {name}", Code.NOT_FOUND, "--create makes it on the way")
        kind = content_type or "application/octet-stream"
        session.request("PUT", url, {"content-type": kind})
        say(f"created {name} ({kind})")
        return kind
    session.expect_stream(url, found)
    return found.headers.get("content-type", content_type or "application/octet-stream")


def _look(session: "Session", url: str, seconds: float) -> "Reply":
    """A server that is starting or cannot do it now is waited for; one that is not there is not."""
    from perennial.cli.session import Patience

    patience = Patience(seconds)
    while True:
        try:
            return session.request("HEAD", url, accept=(200, 404))
        except Trouble as trouble:
            if trouble.code != Code.UNAVAILABLE:
                raise
            if patience.wait(trouble):
                say(f"{trouble.message}; trying again for {seconds:g} seconds")


class Sender:
    """Sends pieces in order, each until it is acknowledged."""

    def __init__(
        self, session: "Session", name: str, kind: str, producer: str | None, epoch: int, patience: float
    ) -> None:
        import secrets

        self._session = session
        self._url = session.stream(name)
        self._kind = kind
        self._id = producer or f"perennial-cli-{secrets.token_hex(8)}"
        self._epoch = epoch
        self._patience = patience
        self._seq = 0
        self._repeated = 0
        self._offset = ""
        self.messages = 0

    def send(self, body: bytes) -> None:
        self._accept(self._until_answered({"content-type": self._kind}, body))

    def close(self) -> None:
        self._accept(self._until_answered({"stream-closed": "true"}, b""))

    @property
    def summary(self) -> str:
        noun = "message" if self.messages == 1 else "messages"
        reached = f" up to offset {self._offset}" if self._offset else ""
        known = f", {self._repeated} requests of it stored before" if self._repeated else ""
        return f"{self.messages} {noun}{reached}{known}"

    def _accept(self, reply: "Reply") -> None:
        # 204 says: that one I had already. It is also what servers without producers answer.
        if reply.status == 204 and "producer-seq" in reply.headers:
            self._repeated += 1
        self._offset = reply.headers.get("stream-next-offset", self._offset)
        self._seq += 1

    def _until_answered(self, headers: dict[str, str], body: bytes) -> "Reply":
        from perennial.cli.session import Patience, refused
        from perennial.client.wire import ConnectionLost

        producer = {
            "producer-id": self._id,
            "producer-epoch": str(self._epoch),
            "producer-seq": str(self._seq),
        }
        patience = Patience(self._patience)
        while True:
            try:
                reply = self._session.try_once("POST", self._url, headers | producer, body)
            except ConnectionLost as error:
                trouble = self._session.unreachable(self._url, error)
            else:
                if reply.status in (200, 204):
                    return reply
                trouble = refused(reply)
                if trouble.code != Code.UNAVAILABLE:
                    raise trouble
            if patience.wait(self._with_advice(trouble)):
                say(f"{trouble.message}; trying again for {self._patience:g} seconds")

    def _with_advice(self, trouble: Trouble) -> Trouble:
        done = f"{self._seq} requests were acknowledged, of the next one it is unknown"
        return Trouble(trouble.code, f"{trouble.message}; {done}", trouble.hint)
