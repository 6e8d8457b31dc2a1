"""Idempotent producers: may this request happen, or has it happened already? (base protocol, 5.2.1)"""

from typing import Final

import msgspec

from perennial.protocol.rejections import Fenced, Gap, Malformed
from perennial.protocol.state import ProducerClaim, ProducerState


class Repeat(msgspec.Struct, frozen=True):
    """Answered before: answer again and write nothing, the client only lost our reply."""

    epoch: int
    last_seq: int


ACCEPT: Final = None

Verdict = Repeat | Fenced | Gap | Malformed | None


def judge(known: ProducerState | None, claim: ProducerClaim) -> Verdict:
    """`ACCEPT`, a repeat, or a refusal."""
    if known is None:
        return ACCEPT if claim.seq == 0 else Gap(expected=0, received=claim.seq)
    if claim.epoch < known.epoch:
        return Fenced(current_epoch=known.epoch)
    if claim.epoch > known.epoch:
        if claim.seq != 0:
            return Malformed("a new Producer-Epoch must start at Producer-Seq 0")
        return ACCEPT
    if claim.seq <= known.last_seq:
        return Repeat(epoch=known.epoch, last_seq=known.last_seq)
    if claim.seq > known.last_seq + 1:
        return Gap(expected=known.last_seq + 1, received=claim.seq)
    return ACCEPT
