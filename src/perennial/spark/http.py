"""HTTP to one server: a kept-alive connection, patience for what passes, clear words for what does not."""

import http.client
import json
import random
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from perennial.spark.errors import Refused, Unreachable
from perennial.spark.options import Target

TIMEOUT_SECONDS: Final = 60.0
# Statuses that say "later": too many requests, and a server that starts, stops or has a full disk.
PASSING: Final = frozenset({429, 502, 503, 504})
FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 5.0
DEFAULT_BUCKET: Final = "default"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes = b""


class Backoff:
    """Pauses that grow, with jitter so that many tasks do not come back together; until patience ends."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self.reset()

    def reset(self) -> None:
        self._since: float | None = None
        self._pause = FIRST_PAUSE_SECONDS

    @property
    def waited_seconds(self) -> float:
        return 0.0 if self._since is None else time.monotonic() - self._since

    def wait(self, at_least: float = 0.0) -> bool:
        """False when it is time to give up."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        left = self._patience - (now - self._since)
        if left <= 0:
            return False
        pause = max(at_least, random.uniform(0.5, 1.0) * self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)
        time.sleep(min(pause, left))
        return True


class Server:
    """Requests to the server of a target. Made where it is used, by one thread; never pickled."""

    def __init__(self, target: Target, patience_seconds: float | None = None) -> None:
        self.target = target
        self._patience = target.retry_seconds if patience_seconds is None else patience_seconds
        self._connection: http.client.HTTPConnection | None = None

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        accept: tuple[int, ...] = (),
    ) -> Answer:
        """The answer, if it is a success or its status is in `accept`; repeated while that may help."""
        url = f"{path}?{urlencode(query, quote_via=quote)}" if query else path
        backoff = Backoff(self._patience)
        while True:
            try:
                answer = self._once(method, url, {**self._identity(), **(headers or {})}, body)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if not backoff.wait():
                    raise Unreachable(self.target.url, describe(error), backoff.waited_seconds) from None
                continue
            if answer.status < 300 or answer.status in accept:
                return answer
            if answer.status in PASSING and backoff.wait(retry_after(answer.headers)):
                continue
            if method == "HEAD":
                # Refused without words; the same question with GET is refused with them.
                answer = self._once("GET", url, {**self._identity(), **(headers or {})}, None)
            raise refusal(self.target, answer)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _identity(self) -> dict[str, str]:
        return identity(self.target)

    def _once(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        if self._connection is None:
            parts = urlsplit(self.target.url)
            kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            self._connection = kind(parts.netloc, timeout=TIMEOUT_SECONDS)
            self._connection.connect()
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.request(method, url, body=body, headers=dict(headers))
        response = self._connection.getresponse()
        content = response.read()
        if response.will_close:
            self.close()
        return Answer(
            response.status, {name.lower(): value for name, value in response.getheaders()}, content
        )


# Addresses


def stream_path(bucket: str, stream: str) -> str:
    """Names with a slash exist in the default bucket only, on the base protocol's own path."""
    if bucket == DEFAULT_BUCKET:
        return f"/v1/stream/{quote(stream)}"
    return f"/ds/{bucket}/{quote(stream, safe='')}"


def extension_path(bucket: str, stream: str, *rest: str) -> str:
    return "/".join([f"/ds/{bucket}/{quote(stream, safe='')}", *rest])


def feed_path(bucket: str) -> str:
    return f"/v1/feed/{bucket}"


# What several callers ask


def list_streams(server: Server, prefix: str = "") -> Iterator[dict[str, Any]]:
    """Every stream of the bucket, in the order of names: stream_id, status, content_type, tail_offset …"""
    after = ""
    while True:
        query = {
            "limit": 1000,
            **({"prefix": prefix} if prefix else {}),
            **({"after": after} if after else {}),
        }
        page = json.loads(server.request("GET", f"/ds/{server.target.bucket}/streams", query).body)
        yield from page["streams"]
        if not page["has_more"]:
            return
        after = page["next_cursor"]


def create_bucket(target: Target) -> bool:
    """Make sure that the bucket is there; True when it is new."""
    with Server(target, patience_seconds=0) as server:
        return server.request("PUT", f"/ds/{target.bucket}", accept=(409,)).status == 201


# Words


def identity(target: Target) -> dict[str, str]:
    return {} if target.token is None else {"Authorization": f"Bearer {target.token}"}


def retry_after(headers: Mapping[str, str]) -> float:
    text = headers.get("retry-after", "")
    return min(float(text), 30.0) if text.isdigit() else 0.0


def describe(error: BaseException) -> str:
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused, nothing listens there"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError):
        return f"no secure connection ({error.reason or error})"
    return str(error) or type(error).__name__


def refusal(target: Target, answer: Answer) -> Refused:
    try:
        error = json.loads(answer.body)["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        code, message = http.client.responses.get(answer.status, "?"), "the server refused the request"
    return Refused(answer.status, code, message, _advice(target, answer.status, code))


def _advice(target: Target, status: int, code: str) -> str:
    if status == 401:
        if target.token is None:
            return "Set the option 'token' to one of the server's PERENNIAL_AUTH_TOKENS"
        return "The server does not know this token: compare the option 'token' with PERENNIAL_AUTH_TOKENS"
    if code == "BUCKET_NOT_FOUND":
        hint = ""
        if target.bucket == "proxy":
            hint = ". The bucket 'proxy' is shown only to those with a service token: set the option 'token'"
        return f"There is no bucket '{target.bucket}' at {target.url}{hint}"
    if status == 413:
        return "A message is larger than the server takes (PERENNIAL_MAX_BODY)"
    if status == 404 and code not in ("STREAM_NOT_FOUND", "SNAPSHOT_NOT_FOUND"):
        return f"Is {target.url} a Perennial server?"
    return ""
