"""One server, and how to address what is on it.

A bare name stands for `/v1/stream/NAME`, or `/ds/BUCKET/NAME` when a bucket is given; a path or a whole URL
stands for itself, so that every server of the protocol can be used whatever its layout.
"""

import json
import os
import random
import re
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote, urlsplit

from perennial.cli.exits import Code, Trouble, die
from perennial.cli.reaching import unreachable
from perennial.client.address import Address, server_address
from perennial.client.calls import Call
from perennial.client.wire import Answer, ConnectionLost, Wire

TIMEOUT_SECONDS: Final = 90.0  # longer than any long-poll should take
SAFE: Final = "/~!$&'()*+,;=:@-._"

CODES: Final = {
    400: Code.FAILED,
    401: Code.DENIED,
    403: Code.DENIED,
    404: Code.NOT_FOUND,
    409: Code.CONFLICT,
    410: Code.NOT_FOUND,
    429: Code.UNAVAILABLE,
    502: Code.UNAVAILABLE,
    503: Code.UNAVAILABLE,
    504: Code.UNAVAILABLE,
    507: Code.UNAVAILABLE,
}


# For answers without a body, as those to HEAD are.
UNEXPLAINED: Final = {
    401: "the server asks for a token that it knows",
    403: "this token is not meant for that",
    404: "there is no such stream",
    410: "the stream is gone",
    503: "the server cannot do it now",
}


class Reply(NamedTuple):
    """An answer that was read to its end. Header names are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Session:
    """`elsewhere` is what to try if no server is there."""

    def __init__(
        self,
        url: str,
        token: str | None,
        bucket: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        elsewhere: str = "--url or PERENNIAL_URL says where",
    ) -> None:
        try:
            self._address = server_address(url)
        except ValueError as error:
            die(str(error), Code.USAGE)
        self.url = self._address.url
        self.bucket = bucket
        self._token = token
        self._elsewhere = elsewhere
        self._wire = Wire(timeout, socket_path=self._address.socket)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wire.close()

    # Addresses

    def stream(self, name: str) -> str:
        """The URL of a stream."""
        if name.startswith(("http://", "https://")):
            return name
        if name.startswith("/"):
            return self.url + _encoded(name, SAFE)
        if self.bucket is None:
            return f"{self.url}/v1/stream/{_encoded(name, SAFE)}"
        return self.below_bucket(name)

    def below_bucket(self, *parts: str) -> str:
        """A URL of the extensions: the bucket, a stream in it, or what belongs to the stream."""
        return "/".join([self.url, "ds", *(_encoded(part) for part in (self.bucket or "default", *parts))])

    def part_of(self, name: str, *parts: str) -> str:
        """The URL of a stream's snapshot or bootstrap."""
        if name.startswith(("http://", "https://", "/")):
            return "/".join([self.stream(name), *parts])
        return self.below_bucket(name, *parts)

    def path(self, name: str) -> str:
        """The path alone, as it goes into headers."""
        return urlsplit(self.stream(name)).path

    def shown(self, url: str) -> str:
        """A URL as it means something to a person: behind a socket, the path is what counts."""
        if self._address.socket is None or not self._address.leads_to(url):
            return url
        return f"{url.removeprefix(self.url)} at {self._address}"

    # Requests

    def open(self, method: str, url: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Answer:
        """An answer whose body is still to be read. Raises `ConnectionLost`."""
        credentials = {"authorization": f"Bearer {self._token}"} if self._token else {}
        sent = {**credentials, **(headers or {})}
        for header, value in sent.items():
            if not _can_be_sent(value):
                die(f"{header} cannot have line breaks, or what is no text", Code.USAGE)
        return self._wire.send(Call(method, url, sent, body))

    def try_once(
        self, method: str, url: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        with self.open(method, url, headers, body) as answer:
            return Reply(answer.status, answer.headers, answer.read())

    def request(
        self,
        method: str,
        url: str,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        accept: tuple[int, ...] = (200, 201, 204),
    ) -> Reply:
        """Ends the command if the answer is not one of those."""
        try:
            reply = self.try_once(method, url, headers, body)
        except ConnectionLost as error:
            raise self.unreachable(url, error) from error
        if reply.status not in accept:
            raise refused(reply)
        return reply

    def expect_stream(self, url: str, reply: Reply) -> Reply:
        """Ends the command if the answer is another one than a stream's: many a web server says 200."""
        if "stream-next-offset" not in reply.headers:
            what = self.shown(url)
            die(f"{what} is not a stream: the answer has no Stream-Next-Offset", Code.NOT_FOUND)
        return reply

    def not_perennial(self, what: str) -> Trouble:
        return Trouble(Code.FAILED, f"{self._address} answers with what is not {what}: is it Perennial?")

    def unreachable(self, url: str, error: ConnectionLost) -> Trouble:
        """What a request that had no answer means for the command."""
        if self._address.leads_to(url):
            return unreachable(self._address, error, self._elsewhere)
        parts = urlsplit(url)
        return unreachable(Address(f"{parts.scheme}://{parts.netloc}"), error)


def _can_be_sent(value: str) -> bool:
    # Controls, and the surrogates that stand for bytes of an argument that are no UTF-8.
    return re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", value) is None


def _encoded(name: str, safe: str = "") -> str:
    """As bytes, since an argument need not be UTF-8; the server says what it thinks of that."""
    return quote(os.fsencode(name), safe)


def refused(reply: Reply) -> Trouble:
    """What an answer that is not a success means for the command."""
    try:
        message = str(json.loads(reply.body)["error"]["message"])
    except (ValueError, TypeError, KeyError):
        message = reply.body[:300].decode("utf-8", "replace").strip() or UNEXPLAINED.get(
            reply.status, "the server gave no reason"
        )
    code = CODES.get(reply.status, Code.FAILED)
    if reply.status == 403 and "producer-epoch" in reply.headers:
        code = Code.CONFLICT  # fenced: another producer has taken over
    hint = "--token or PERENNIAL_TOKEN says who you are" if reply.status == 401 else ""
    return Trouble(code, f"{message} ({reply.status})", hint)


def pauses() -> Iterator[float]:
    """Seconds to wait before each further attempt; many clients do not come back in the same instant."""
    pause = 0.1
    while True:
        yield pause * random.uniform(0.5, 1.0)
        pause = min(pause * 2, 5.0)


class Patience:
    """Counts down while a server cannot be reached, and starts anew when it answers."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._pauses = pauses()

    def answered(self) -> None:
        if self._since is not None:
            self._since, self._pauses = None, pauses()

    def wait(self, trouble: Trouble) -> bool:
        """Wait a moment; True if it is the first since an answer. Raises the trouble when it is over."""
        now = time.monotonic()
        first = self._since is None
        if self._since is None:
            self._since = now
        if self._seconds is not None and now - self._since >= self._seconds:
            raise trouble
        time.sleep(next(self._pauses))
        return first


def suggest_names(url: str, token: str | None, bucket: str | None, prefix: str) -> list[str]:
    try:
        with Session(url, token, bucket, timeout=0.5) as session:
            reply = session.try_once(
                "GET", f"{session.below_bucket('streams')}?limit=50&prefix={quote(prefix, '')}"
            )
            page: dict[str, Any] = json.loads(reply.body)
            return [row["stream_id"] for row in page["streams"]]
    except (ConnectionLost, Trouble, ValueError, KeyError, TypeError):
        return []
