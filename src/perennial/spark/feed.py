"""Reading a bucket's feed: its range, samples of it, and its pages as Arrow batches."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from perennial.spark.errors import DataLost
from perennial.spark.http import Server, feed_path
from perennial.spark.options import Target
from perennial.spark.planning import Range, Sample
from perennial.spark.selection import Selection

SAMPLE_LIMIT: Final = 1  # the server sends at least one stored value: up to about a mebibyte of rows


@dataclass(frozen=True)
class Extent:
    """The stored feed begins at `earliest` and ends with `head`."""

    earliest: int
    head: int


def extent(server: Server) -> Extent:
    headers = server.request("HEAD", feed_path(server.target.bucket)).headers
    return Extent(int(headers["feed-earliest-position"]), int(headers["feed-head-position"]))


def first_contact(target: Target) -> Extent:
    """On the driver, before any task: a wrong address, token or bucket fails here and at once."""
    with Server(target, patience_seconds=0) as server:
        return extent(server)


def take_samples(server: Server, points: list[int], until: int) -> list[Sample]:
    samples = []
    for after in points:
        batches, _ = _page(server, Selection(after, until), SAMPLE_LIMIT)
        rows = sum(batch.num_rows for batch in batches)
        size = sum(batch.nbytes for batch in batches)
        if rows:
            samples.append(Sample(after, size / rows))
    return samples


def read_pages(target: Target, wanted: Range, selection: Selection, page_bytes: int) -> Iterator[Any]:
    """The selected rows of a range, in order. One page is on its way while another is worked on."""
    after = wanted.after
    with Server(target) as server, ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(_page, server, _part(selection, after, wanted.until), page_bytes)
        while True:
            batches, after = coming.result()
            last = after >= wanted.until
            if not last:
                coming = ahead.submit(_page, server, _part(selection, after, wanted.until), page_bytes)
            for batch in batches:
                kept = selection.keep(batch)
                if kept.num_rows:
                    yield kept
            if last:
                return


def check_not_lost(found: Extent, after: int, bucket: str, fail: bool) -> None:
    """Has what comes after `after` been there all along? (Raises `DataLost` if that matters.)"""
    if after > found.head:
        raise DataLost(
            f"position {after} was read before, but the feed of '{bucket}' ends at {found.head}: the "
            "server's data is not the one this query began with. Start the query with a new checkpoint"
        )
    if fail and after + 1 < found.earliest:
        raise DataLost(
            f"positions {after + 1} to {found.earliest - 1} of the feed of '{bucket}' are gone: they were "
            "trimmed or deleted before they were read. To go on without them, set failOnDataLoss to false"
        )


def _part(selection: Selection, after: int, until: int) -> Selection:
    return Selection(after, until, selection.streams, selection.prefix)


def _page(server: Server, selection: Selection, limit: int) -> tuple[list[Any], int]:
    query = {"after": selection.after, "until": selection.until, "limit": limit, **selection.query()}
    answer = server.request("GET", feed_path(server.target.bucket), query)
    batches = list(pa.ipc.open_stream(pa.py_buffer(answer.body)))
    return batches, int(answer.headers["feed-next-position"])
