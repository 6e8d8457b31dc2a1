"""Requests to buckets, snapshots, bootstrap and feeds, and what the answers mean. No I/O."""

import json
from collections.abc import Mapping
from operator import index
from typing import Any, Final, SupportsIndex
from urllib.parse import quote, urlencode

from perennial.client.address import server_address
from perennial.client.calls import Call
from perennial.client.errors import refusal
from perennial.client.messages import BucketInfo, FeedRange, StreamInfo
from perennial.protocol.offsets import format_offset

DEFAULT_URL: Final = "http://127.0.0.1:4437"

Offset = str | SupportsIndex
"""A position as the protocol writes it, or as a number of bytes: that is how listings and feeds have it."""


def offset_text(offset: Offset) -> str:
    return offset if isinstance(offset, str) else format_offset(index(offset))


class Requests:
    """Builds requests for one server, with one service token."""

    def __init__(self, url: str, token: str | None) -> None:
        self.address = server_address(url)
        self._url = self.address.url
        self._credentials = {} if token is None else {"authorization": f"Bearer {token}"}

    def bucket(self, method: str, bucket: str) -> Call:
        return self._call(method, self._path("ds", bucket))

    def listing(self, bucket: str, prefix: str, after: str, limit: int) -> Call:
        query = {"prefix": prefix, "after": after, "limit": limit}
        return self._call("GET", self._path("ds", bucket, "streams"), query)

    def head(self, bucket: str, stream: str) -> Call:
        return self._call("HEAD", self._path("ds", bucket, stream))

    def read(self, bucket: str, stream: str, query: Mapping[str, Any]) -> Call:
        return self._call("GET", self._path("ds", bucket, stream), query)

    def snapshot(self, method: str, bucket: str, stream: str, offset: Offset, body: Any = b"") -> Call:
        path = self._path("ds", bucket, stream, "snapshot", offset_text(offset))
        return self._call(method, path, body=body)

    def latest_snapshot(self, bucket: str, stream: str) -> Call:
        return self._call("GET", self._path("ds", bucket, stream, "snapshot"))

    def bootstrap(self, bucket: str, stream: str) -> Call:
        return self._call("GET", self._path("ds", bucket, stream, "bootstrap"))

    def feed(self, method: str, bucket: str, query: Mapping[str, Any]) -> Call:
        return self._call(method, self._path("v1", "feed", bucket), query)

    def _path(self, *segments: str) -> str:
        return "".join(f"/{quote(segment, safe='')}" for segment in segments)

    def _call(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = b"") -> Call:
        given = {name: value for name, value in (query or {}).items() if value not in (None, "")}
        target = f"{path}?{urlencode(given)}" if given else path
        return Call(method, self._url + target, dict(self._credentials), body)


class Listing:
    """Walks along a bucket's listing, page by page."""

    def __init__(self, requests: Requests, bucket: str, prefix: str, after: str, page_size: int) -> None:
        self._requests = requests
        self._arguments = (bucket, prefix)
        self._page_size = page_size
        self._after = after
        self.ended = False

    def next_call(self) -> Call:
        return self._requests.listing(*self._arguments, self._after, self._page_size)

    def take(self, status: int, headers: Mapping[str, str], body: bytes) -> list[StreamInfo]:
        page = checked(status, headers, body)
        self._after = page["next_cursor"]
        self.ended = not page["has_more"]
        fields = StreamInfo.__dataclass_fields__
        return [StreamInfo(**{name: row[name] for name in fields}) for row in page["streams"]]


def checked(status: int, headers: Mapping[str, str], body: bytes) -> Any:
    """The JSON of a 200, or nothing of another success; raises `Refused`."""
    if not 200 <= status < 300:
        problem = refusal(status, headers, body)
        tail = headers.get("stream-next-offset")
        problem.next_offset = None if tail is None else int(tail)
        raise problem
    return json.loads(body) if status == 200 and body else None


def bucket_info(status: int, headers: Mapping[str, str], body: bytes) -> BucketInfo:
    found = checked(status, headers, body)
    return BucketInfo(found["bucket_id"], found["streams"])


def feed_range(status: int, headers: Mapping[str, str], body: bytes) -> FeedRange:
    checked(status, headers, b"")
    return FeedRange(int(headers["feed-earliest-position"]), int(headers["feed-head-position"]))
