"""May this snapshot be published? (extensions, 2.2) The order of the checks decides which refusal wins."""

from perennial.protocol.rejections import (
    BeyondTail,
    Malformed,
    OffsetTrimmed,
    Rejected,
    StreamGone,
    StreamMissing,
)
from perennial.protocol.state import StreamState

NOT_A_BOUNDARY = Malformed(
    "the snapshot offset is not a message boundary; use a Stream-Next-Offset of the server"
)


def judge_offset(state: StreamState | None, offset: int) -> Rejected | None:
    """Everything that can be said before the stored messages are looked at."""
    if state is None:
        return StreamMissing()
    if state.soft_deleted:
        return StreamGone()
    if offset > state.tail:
        return BeyondTail(state.tail)
    if offset < state.earliest:
        return OffsetTrimmed(state.earliest)
    return None
