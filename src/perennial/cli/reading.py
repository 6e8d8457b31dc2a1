"""`read` and `tail`: bytes as they are; of JSON streams one message per line, or pretty with `--json`."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perennial.cli.exits import Code, Trouble, die, say
from perennial.cli.options import DEFAULT_URL, Bucket, Name, Token, Url

if TYPE_CHECKING:
    from perennial.cli.session import Session

Offset = Annotated[str, typer.Option("--offset", "-o", help="-1 is the beginning, now is the tail.")]
Pretty = Annotated[bool, typer.Option("--json", help="Pretty print the messages of a JSON stream.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Say at the end where reading can go on, on standard error.")
]


def register(app: typer.Typer) -> None:
    app.command()(read)
    app.command()(tail)


def read(
    name: Name,
    offset: Offset = "-1",
    pretty: Pretty = False,
    verbose: Verbose = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    bucket: Bucket = None,
) -> None:
    """Print what a stream holds, up to its present tail."""
    with _session(url, token, bucket) as session:
        reader = Reader(session, name, offset, Printer(pretty), patience=10.0)
        while not reader.up_to_date:
            reader.step(live=False)
    if verbose:
        say(f"next offset: {reader.offset}")


def tail(
    name: Name,
    offset: Offset = "now",
    pretty: Pretty = False,
    verbose: Verbose = False,
    give_up_after: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds without an answer until it gives up. [default: never]"),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    bucket: Bucket = None,
) -> None:
    """Follow a stream until it is closed. A lost connection is taken up again where it broke off."""
    with _session(url, token, bucket) as session:
        reader = Reader(session, name, offset, Printer(pretty), patience=give_up_after)
        try:
            while not reader.at_end:
                reader.step(live=True)
        finally:
            if verbose:
                say(f"next offset: {reader.offset}")
    say(f"{name} is closed")


def _session(url: str, token: str | None, bucket: str | None) -> "Session":
    from perennial.cli.session import Session

    return Session(url, token, bucket)


class Reader:
    """Reads a stream answer by answer; what was printed is never asked for again."""

    def __init__(
        self, session: "Session", name: str, offset: str, printer: "Printer", patience: float | None
    ) -> None:
        from perennial.cli.session import Patience

        self._session = session
        self._url = session.stream(name)
        self._printer = printer
        self._patience = Patience(patience)
        self._cursor = ""
        self._reached = False  # has the server ever answered?
        self.offset = offset
        self.up_to_date = False
        self.at_end = False

    def step(self, live: bool) -> None:
        """One answer, printed; or a pause if there was none."""
        from perennial.cli.session import refused
        from perennial.client.wire import ConnectionLost

        join = "&" if "?" in self._url else "?"
        # The first answer comes at once and tells where we are: from then on a lost connection costs nothing.
        mode = f"&live=long-poll{self._cursor}" if live and self._reached else ""
        try:
            # A body is printed when it has come whole: what is printed and where to go on agree at all times.
            reply = self._session.try_once("GET", f"{self._url}{join}offset={self.offset}{mode}")
        except ConnectionLost as error:
            self._lost(self._session.unreachable(self._url, error))
            return
        if reply.status not in (200, 204):
            self._refused(refused(reply))
            return
        self._session.expect_stream(self._url, reply)
        self._reached = True
        self._patience.answered()
        self._took(reply)

    def _took(self, reply: Any) -> None:
        headers = reply.headers
        if reply.body:
            self._printer.show(reply.body, headers.get("content-type", ""))
        self.offset = headers["stream-next-offset"]
        cursor = headers.get("stream-cursor")
        self._cursor = "" if cursor is None else f"&cursor={cursor}"
        self.up_to_date = reply.status == 204 or "stream-up-to-date" in headers
        self.at_end = self.up_to_date and headers.get("stream-closed", "").lower() == "true"

    def _refused(self, trouble: Trouble) -> None:
        if trouble.code != Code.UNAVAILABLE:
            raise trouble
        self._lost(trouble)

    def _lost(self, trouble: Trouble) -> None:
        if not self._reached and trouble.code == Code.UNREACHABLE:
            raise trouble  # it was never there: probably a wrong address
        if self._patience.wait(trouble):
            say(f"{trouble.message}; trying again, nothing will be missed")


class Printer:
    def __init__(self, pretty: bool) -> None:
        self._pretty = pretty
        self._out = sys.stdout.buffer

    def show(self, body: bytes, content_type: str) -> None:
        if content_type.partition(";")[0].strip().lower() == "application/json":
            self._show_messages(body)
        elif self._pretty:
            die(f"--json is for JSON streams, and this one is {content_type}", Code.USAGE)
        else:
            self._out.write(body)
        self._out.flush()

    def _show_messages(self, body: bytes) -> None:
        import msgspec

        for message in msgspec.json.decode(body, type=list[msgspec.Raw]):
            if not self._pretty:
                # As they were sent, except for line breaks between tokens.
                raw = bytes(message)
                self._out.write((msgspec.json.format(raw, indent=-1) if b"\n" in raw else raw) + b"\n")
            elif sys.stdout.isatty():
                self._show_in_colour(bytes(message))
            else:
                self._out.write(msgspec.json.format(bytes(message), indent=2) + b"\n")

    def _show_in_colour(self, message: bytes) -> None:
        from rich.console import Console
        from rich.json import JSON

        Console().print(JSON(message.decode()))
