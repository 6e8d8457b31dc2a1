"""Buckets (extensions, 1): create, describe, list, delete."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from perennial.http.access.identity import READ, BeyondScope
from perennial.http.errors import reject
from perennial.http.exchange import Exchange
from perennial.http.paths import own_path
from perennial.http.query import parse_query
from perennial.protocol.rejections import BucketMissing, Malformed, Rejected
from perennial.service.listing import describe_bucket, encode_page, list_streams
from perennial.service.streams import StreamService

MAX_PAGE = 1000

JSON_NO_STORE = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


class BucketSurface:
    def __init__(self, service: StreamService) -> None:
        self._service = service
        self.methods: dict[str, Callable[[Exchange, str], None]] = {
            "PUT": self.put,
            "GET": self.get,
            "HEAD": self.get,
            "DELETE": self.delete,
        }

    def put(self, exchange: Exchange, bucket: str) -> None:
        self._service.create_bucket(bucket, partial(self._answer, exchange, 201))

    def get(self, exchange: Exchange, bucket: str) -> None:
        described = describe_bucket(self._service, bucket)
        if described is None:
            reject(exchange, BucketMissing())
        else:
            exchange.respond(200, JSON_NO_STORE, msgspec.json.encode(described))

    def delete(self, exchange: Exchange, bucket: str) -> None:
        self._service.delete_bucket(bucket, partial(self._answer, exchange, 204))

    def list(self, exchange: Exchange, bucket: str) -> None:
        """Those streams that the reader may see, by their names."""
        query = parse_query(exchange.request.query, "prefix", "after", "limit")
        if isinstance(query, Malformed):
            reject(exchange, query)
            return
        prefix: str | None = query.get("prefix", "")
        if exchange.request.identity is not None:
            prefix = exchange.request.identity.narrow(READ, bucket, query.get("prefix", ""))
        limit = _parse_limit(query.get("limit"))
        if prefix is None:
            reject(exchange, BeyondScope())
        elif isinstance(limit, Malformed):
            reject(exchange, limit)
        elif self._service.buckets.get(bucket) is None:
            reject(exchange, BucketMissing())
        else:
            page = list_streams(self._service, bucket, prefix, query.get("after", ""), limit)
            exchange.respond(200, JSON_NO_STORE, encode_page(page))

    def _answer(self, exchange: Exchange, status: int, outcome: Any) -> None:
        if isinstance(outcome, Rejected):
            reject(exchange, outcome)
        else:
            exchange.respond(status, [(b"location", own_path(exchange.request))] if status == 201 else [])


def _parse_limit(text: str | None) -> int | Malformed:
    if text is None:
        return MAX_PAGE
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MAX_PAGE):
        return Malformed(f"limit must be a number from 1 to {MAX_PAGE}, not {text[:32]!r}")
    return int(text)
