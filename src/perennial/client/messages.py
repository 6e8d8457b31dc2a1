"""What a client hands out: plain values."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BucketInfo:
    bucket_id: str
    streams: int


@dataclass(frozen=True)
class StreamInfo:
    """One line of a bucket's listing. `status` is `Open` or `Closed`; `tail_offset` counts payload bytes."""

    stream_id: str
    status: str
    content_type: str
    tail_offset: int
    created_at_ms: int
    last_write_at_ms: int


@dataclass(frozen=True)
class Message:
    """One message of a stream. `next_offset` is where reading goes on behind it.

    Ordinary reads of byte streams keep no message boundaries: there a tail hands out data as it comes.
    """

    data: bytes
    content_type: str
    next_offset: str


@dataclass(frozen=True)
class Snapshot:
    """A snapshot, whole. It stands for everything before `offset`."""

    data: bytes
    content_type: str
    offset: str


@dataclass(frozen=True)
class FeedRange:
    """The positions a feed has now; `earliest` is `head + 1` when there are none."""

    earliest: int
    head: int
