"""Every way a command can be refused. Values, not exceptions: `http/errors.py` gives each its status."""

from typing import Final

import msgspec

# Enough of a content type to recognise it by.
SHOWN_CHARACTERS: Final = 80


class Rejected(msgspec.Struct, frozen=True):
    """Base of all refusals; the state is untouched whenever one is returned."""

    @property
    def message(self) -> str:
        return self.__doc__ or type(self).__name__


class Malformed(Rejected, frozen=True):
    """The request itself is wrong, whatever the stream's state."""

    reason: str

    @property
    def message(self) -> str:
        return self.reason


class StreamMissing(Rejected, frozen=True):
    """There is no stream here: it was never created, was deleted, or has expired."""


class BucketMissing(Rejected, frozen=True):
    """There is no such bucket; create it first with PUT /ds/{bucket}."""


class StreamGone(Rejected, frozen=True):
    """This stream was deleted; its data lives on only inside its forks."""


class ConfigConflict(Rejected, frozen=True):
    """A stream with another configuration exists here."""

    difference: str

    @property
    def message(self) -> str:
        return f"a stream with another configuration exists here: {self.difference} differs"


class NameTaken(Rejected, frozen=True):
    """A deleted stream still occupies this name because forks read from it; delete the forks first."""


class ContentTypeConflict(Rejected, frozen=True):
    """The body's content type is not the stream's."""

    expected: str
    received: str

    @property
    def message(self) -> str:
        return f"the stream holds {_shown(self.expected)}, and this request says {_shown(self.received)}"


class StreamClosed(Rejected, frozen=True):
    """The stream is closed and takes no more data."""

    tail: int


class SequenceRegression(Rejected, frozen=True):
    """Stream-Seq must be greater than the last one."""

    last: str

    @property
    def message(self) -> str:
        return f"Stream-Seq must be byte-wise greater than the last accepted one, {self.last!r}"


class Fenced(Rejected, frozen=True):
    """A newer session of this producer has taken over."""

    current_epoch: int


class Gap(Rejected, frozen=True):
    """An earlier request of this producer is missing."""

    expected: int
    received: int

    @property
    def message(self) -> str:
        return f"sequence gap: expected Producer-Seq {self.expected}, received {self.received}"


class OffsetTrimmed(Rejected, frozen=True):
    """The offset lies before the earliest retained one; start again from the stream's bootstrap."""

    earliest: int


class BeyondTail(Rejected, frozen=True):
    """The snapshot offset lies beyond the stream's tail."""

    tail: int


class SnapshotMissing(Rejected, frozen=True):
    """There is no such snapshot: none was published, or a newer one has replaced it."""


class SnapshotInUse(Rejected, frozen=True):
    """The latest snapshot cannot be deleted: bootstrap would become incomplete. Publish a newer one."""


class BucketExists(Rejected, frozen=True):
    """A bucket with this id exists."""


class BucketNotEmpty(Rejected, frozen=True):
    """The bucket still has streams; delete them first."""


class BuiltInBucket(Rejected, frozen=True):
    """This bucket is built in: it is always there and cannot be created or deleted."""


class QuotaExceeded(Rejected, frozen=True):
    """The bucket is full."""

    reason: str

    @property
    def message(self) -> str:
        return f"{self.reason}; delete something or ask for more"


class SourceMissing(Rejected, frozen=True):
    """The stream to fork from does not exist."""


class SourceGone(Rejected, frozen=True):
    """The stream to fork from was deleted."""


def _shown(content_type: str) -> str:
    short = len(content_type) <= SHOWN_CHARACTERS
    return content_type if short else content_type[: SHOWN_CHARACTERS - 1] + "…"
