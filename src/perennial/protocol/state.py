"""What a stream is, the records that change it, and `apply`: the state is a fold over the records.

`decide…` functions (in `append`, `create`, `removal`) look at a state and a command and return records or
a refusal; `apply` is where a state moves, on the live path and when records are replayed. (`append_plainly`
does both for the plainest of appends, and a property test holds it to them.)
"""

from collections.abc import Sequence

import msgspec


class ProducerClaim(msgspec.Struct, frozen=True, gc=False):
    """What a producer says of a request: who I am, my session, my place in it."""

    id: str
    epoch: int
    seq: int


class ProducerState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a stream remembers of one producer."""

    epoch: int
    last_seq: int


class Inherited(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Bytes before `end` (and after the previous segment) are stored under stream `id`."""

    id: int
    end: int


class ForkOrigin(msgspec.Struct, frozen=True, array_like=True):
    """The fork request as it was made; a repeated request is compared with this."""

    bucket: str
    name: str
    offset: int
    sub_offset: int


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """A materialised fold of everything before `offset`, kept as blob `blob` by stream `owner`.

    `lent`: a fork has taken it over, so the owner keeps the blob as long as it has forks.
    """

    offset: int
    content_type: str
    size: int
    blob: int
    owner: int
    lent: bool = False


class StreamState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One incarnation of a stream. `tail` is what was accepted; durability is the service's business."""

    id: int
    content_type: str
    created_ms: int
    last_write_ms: int
    ttl_seconds: int | None = None
    expires_at_ms: int | None = None
    tail: int = 0
    closed: bool = False
    closed_by: ProducerClaim | None = None
    seq: str | None = None
    origin: ForkOrigin | None = None
    lineage: tuple[Inherited, ...] = ()
    forks: int = 0
    soft_deleted: bool = False
    snapshot: Snapshot | None = None
    # Superseded snapshots that forks still show.
    kept_blobs: tuple[int, ...] = ()
    # Bytes that only forks may still need: those snapshots, and own data before the current one.
    kept_for_forks: int = 0

    @property
    def earliest(self) -> int:
        """Where the retained range begins: everything before is in the snapshot only."""
        return self.snapshot.offset if self.snapshot is not None else 0

    @property
    def base(self) -> int:
        """Where this stream's own bytes begin; everything before is inherited."""
        return self.lineage[-1].end if self.lineage else 0


class Created(msgspec.Struct, frozen=True):
    id: int
    content_type: str
    at_ms: int
    ttl_seconds: int | None = None
    expires_at_ms: int | None = None
    origin: ForkOrigin | None = None
    lineage: tuple[Inherited, ...] = ()
    snapshot: Snapshot | None = None


class Appended(msgspec.Struct, frozen=True):
    """Messages added in one request. `ends` are the messages' ends, relative to the payload's start."""

    payload: bytes
    ends: Sequence[int]
    at_ms: int
    producer: ProducerClaim | None = None
    seq: str | None = None
    closes: bool = False


class Closed(msgspec.Struct, frozen=True):
    at_ms: int
    producer: ProducerClaim | None = None
    seq: str | None = None


class ForkTaken(msgspec.Struct, frozen=True):
    """A fork now reads from this stream."""


class ForkReleased(msgspec.Struct, frozen=True):
    """A fork of this stream is gone."""


class SnapshotPublished(msgspec.Struct, frozen=True):
    """A new snapshot replaces the one before, and with it all retained data before its offset."""

    snapshot: Snapshot


class SoftDeleted(msgspec.Struct, frozen=True):
    """Deleted for its users; kept for its forks."""


class Removed(msgspec.Struct, frozen=True):
    """Gone, data and all."""


Record = Created | Appended | Closed | ForkTaken | ForkReleased | SnapshotPublished | SoftDeleted | Removed


def apply(state: StreamState | None, record: Record) -> StreamState | None:
    """The state after `record`. Total: every record a `decide…` function returns can be applied."""
    if type(record) is Appended:
        assert state is not None, "decide_append refuses a missing stream"
        closed_by = record.producer if record.closes else None
        return grown(state, len(record.payload), record.at_ms, record.seq, record.closes, closed_by)
    if isinstance(record, Created):
        return StreamState(
            id=record.id,
            content_type=record.content_type,
            created_ms=record.at_ms,
            last_write_ms=record.at_ms,
            ttl_seconds=record.ttl_seconds,
            expires_at_ms=record.expires_at_ms,
            tail=record.lineage[-1].end if record.lineage else 0,
            origin=record.origin,
            lineage=record.lineage,
            snapshot=record.snapshot,
        )
    assert state is not None, "only Created applies to nothing"
    if isinstance(record, Closed):
        return msgspec.structs.replace(
            state,
            closed=True,
            closed_by=record.producer,
            seq=state.seq if record.seq is None else record.seq,
            last_write_ms=record.at_ms,
        )
    if isinstance(record, ForkTaken):
        lent = state.snapshot and msgspec.structs.replace(state.snapshot, lent=True)
        return msgspec.structs.replace(state, forks=state.forks + 1, snapshot=lent)
    if isinstance(record, ForkReleased):
        kept, size = (state.kept_blobs, state.kept_for_forks) if state.forks > 1 else ((), 0)
        return msgspec.structs.replace(state, forks=state.forks - 1, kept_blobs=kept, kept_for_forks=size)
    if isinstance(record, SnapshotPublished):
        return _published(state, record.snapshot)
    if isinstance(record, SoftDeleted):
        return msgspec.structs.replace(state, soft_deleted=True)
    return None


def blobs_of(state: StreamState | None) -> set[int]:
    """The blobs this stream owns; what a change drops from here may be discarded."""
    if state is None:
        return set()
    own = {state.snapshot.blob} if state.snapshot and state.snapshot.owner == state.id else set()
    return own.union(state.kept_blobs)


def grown(
    state: StreamState,
    size: int,
    at_ms: int,
    seq: str | None = None,
    closed: bool = False,
    closed_by: ProducerClaim | None = None,
) -> StreamState:
    # Positional and in field order: this runs once per append, and is half the cost of `replace`.
    return StreamState(
        state.id,
        state.content_type,
        state.created_ms,
        at_ms,
        state.ttl_seconds,
        state.expires_at_ms,
        state.tail + size,
        closed,
        closed_by,
        state.seq if seq is None else seq,
        state.origin,
        state.lineage,
        state.forks,
        state.soft_deleted,
        state.snapshot,
        state.kept_blobs,
        state.kept_for_forks,
    )


def _published(state: StreamState, snapshot: Snapshot) -> StreamState:
    old, kept, size = state.snapshot, state.kept_blobs, state.kept_for_forks
    if state.forks:
        size += max(0, snapshot.offset - max(state.base, state.earliest))
        if old is not None and old.owner == state.id and old.lent:
            kept, size = (*kept, old.blob), size + old.size
    return msgspec.structs.replace(state, snapshot=snapshot, kept_blobs=kept, kept_for_forks=size)
