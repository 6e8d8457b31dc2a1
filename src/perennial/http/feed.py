"""The bucket feed at `/v1/feed/{bucket}`: a bounded page of rows as Arrow, and where the next one begins."""

import asyncio
import logging
import re
from typing import Final

import msgspec

from perennial.http.base import ARROW_TYPE
from perennial.http.errors import fail, reject
from perennial.http.exchange import FAILED, Exchange, Headers
from perennial.http.live import LiveReads
from perennial.http.query import parse_query
from perennial.protocol.rejections import BucketMissing, Malformed, Rejected
from perennial.service.feed import END_OF_TIME, StreamFilter
from perennial.service.streams import StreamService

log = logging.getLogger("perennial.http")

DEFAULT_LIMIT_BYTES: Final = 16 << 20
MAX_LIMIT_BYTES: Final = 64 << 20
NEXT_POSITION: Final = b"feed-next-position"
HEAD_POSITION: Final = b"feed-head-position"
EARLIEST_POSITION: Final = b"feed-earliest-position"

_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")


class FeedQuery(msgspec.Struct, frozen=True):
    after: int
    until: int
    limit: int
    wanted: StreamFilter
    live: bool


class FeedSurface:
    def __init__(self, service: StreamService, live: LiveReads) -> None:
        self._service = service
        self._live = live
        self._tasks: set[asyncio.Task[None]] = set()

    def head(self, exchange: Exchange, bucket: str) -> None:
        """The present range: what a reader from the beginning would see, and how far it goes."""
        if self._service.buckets.get(bucket) is None:
            reject(exchange, BucketMissing())
            return
        earliest = (EARLIEST_POSITION, b"%d" % self._service.feed.earliest(bucket))
        exchange.respond(200, [earliest, *self._headers(bucket, self._service.feed.head(bucket))])

    def get(self, exchange: Exchange, bucket: str) -> None:
        query = parse_feed_query(exchange.request.query)
        if isinstance(query, Rejected):
            reject(exchange, query)
        elif self._service.buckets.get(bucket) is None:
            reject(exchange, BucketMissing())
        elif query.after > self._service.feed.head(bucket):
            head = self._service.feed.head(bucket)
            reject(exchange, Malformed(f"after={query.after} lies beyond the newest position, {head}"))
        else:
            task = self._live.loop.create_task(self._answer(exchange, bucket, query))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            exchange.on_closed = lambda: _stop(task)

    async def _answer(self, exchange: Exchange, bucket: str, query: FeedQuery) -> None:
        try:
            await self._send_page(exchange, bucket, query)
        except Exception:
            log.exception("failed to read the feed of %s", bucket)
            fail(exchange, 500, "INTERNAL_ERROR", FAILED)

    async def _send_page(self, exchange: Exchange, bucket: str, query: FeedQuery) -> None:
        feed = self._service.feed
        if query.live and feed.head(bucket) == query.after:
            if not self._live.admit(exchange):
                return
            await self._growth(bucket)
        # Loaded with the first feed request: the library costs time and memory nobody else should pay.
        from perennial.http.arrow import ArrowBody

        body = ArrowBody()
        head = feed.head(bucket)
        page = feed.page(bucket, query.after, query.until, query.wanted, query.limit)
        for rows in page:
            body.add(rows)
            # A page is built in steps of one stored value; requests have their turn in between.
            await asyncio.sleep(0)
        headers = [(b"content-type", ARROW_TYPE.encode()), *self._headers(bucket, page.next_position, head)]
        exchange.respond(200, headers, body.finish())

    async def _growth(self, bucket: str) -> None:
        """Until something is committed, the long-poll timeout passes, or the server stops."""
        grown = asyncio.Event()
        unwatch = self._service.feed.watch(bucket, grown.set)
        leave = self._live.on_drain(grown.set)
        try:
            async with asyncio.timeout(self._live.long_poll_seconds):
                await grown.wait()
        except TimeoutError:
            pass
        finally:
            unwatch()
            leave()

    def _headers(self, bucket: str, next_position: int, head: int | None = None) -> Headers:
        newest = self._service.feed.head(bucket) if head is None else head
        return [
            (NEXT_POSITION, b"%d" % next_position),
            (HEAD_POSITION, b"%d" % newest),
            (b"cache-control", b"no-store"),
        ]


def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()


def parse_feed_query(raw: bytes) -> FeedQuery | Malformed:
    query = parse_query(raw, "after", "until", "limit", "stream", "prefix", "live")
    if isinstance(query, Malformed):
        return query
    numbers = {"after": 0, "until": END_OF_TIME, "limit": DEFAULT_LIMIT_BYTES}
    for name in numbers:
        if name in query:
            if _NUMBER.fullmatch(query[name]) is None:
                return Malformed(f"{name} must be a whole number, not {query[name][:32]!r}")
            numbers[name] = int(query[name])
    live = query.get("live")
    if live not in (None, "long-poll"):
        return Malformed(f"live must be 'long-poll' on a feed, not {live[:32]!r}")
    limit = max(1, min(numbers["limit"], MAX_LIMIT_BYTES))
    wanted = StreamFilter(query.get("stream"), query.get("prefix"))
    return FeedQuery(numbers["after"], numbers["until"], limit, wanted, live is not None)
