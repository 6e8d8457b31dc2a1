"""The block codec against lists of messages: merging changes nothing that anybody can ask for."""

import random
from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from perennial.store.blocks import Block, encode_append, merge

Messages = list[bytes]

messages = st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=5)
appends = st.lists(messages, min_size=1, max_size=6)
starts = st.integers(0, 1000)


def encode(batches: list[Messages]) -> list[bytes]:
    """Each append as a block of its own."""
    return [
        encode_append(100 + index, 1000 + index, b"".join(batch), list(accumulate(map(len, batch))))
        for index, batch in enumerate(batches)
    ]


def merged(start: int, batches: list[Messages], chance: random.Random) -> Block:
    """One block, merged in a random order of neighbours, as repeated sealing would."""
    values = encode(batches)
    while len(values) > 1:
        first = chance.randrange(len(values) - 1)
        last = chance.randrange(first + 2, len(values) + 1)
        values[first:last] = [merge(values[first:last])]
    return Block(start, values[0])


class Model:
    """The same appends as plain lists of (start, end) positions."""

    def __init__(self, start: int, batches: list[Messages]) -> None:
        self.start = start
        self.bytes = b"".join(b"".join(batch) for batch in batches)
        self.end = start + len(self.bytes)
        self.appends: list[list[tuple[int, int]]] = []
        position = start
        for batch in batches:
            ends = list(accumulate(map(len, batch), initial=position))
            self.appends.append(list(pairwise(ends)))
            position = ends[-1]
        self.messages = [message for batch in self.appends for message in batch]

    def text(self, start: int, end: int) -> bytes:
        return self.bytes[max(0, start - self.start) : max(0, end - self.start)]


@given(starts, appends, st.randoms(use_true_random=False))
def test_a_block_keeps_bytes_boundaries_positions_and_times(
    start: int, batches: list[Messages], chance: random.Random
) -> None:
    block, model = merged(start, batches, chance), Model(start, batches)
    assert (block.start, block.end) == (start, model.end)
    assert bytes(block.payload) == model.bytes
    assert list(block.ends) == [end - start for _, end in model.messages]
    assert list(block.positions) == [100 + index for index in range(len(batches))]
    assert list(block.times) == [1000 + index for index in range(len(batches))]
    firsts = list(accumulate(map(len, batches), initial=0))[:-1]
    assert list(block.firsts) == firsts


@given(starts, appends, st.randoms(use_true_random=False))
def test_a_boundary_is_where_a_message_begins_or_ends(
    start: int, batches: list[Messages], chance: random.Random
) -> None:
    block, model = merged(start, batches, chance), Model(start, batches)
    boundaries = {start} | {end for _, end in model.messages}
    for position in range(start, model.end + 3):
        assert block.is_boundary(position) == (position in boundaries), position


@given(starts, appends, st.randoms(use_true_random=False), st.data())
def test_any_range_gives_the_messages_that_lie_inside(
    start: int, batches: list[Messages], chance: random.Random, data: st.DataObject
) -> None:
    block, model = merged(start, batches, chance), Model(start, batches)
    low = data.draw(st.integers(max(0, start - 2), model.end))
    high = data.draw(st.integers(low, model.end + 2))
    first, last = block.message_range(low, high)
    inside = [model.text(*message) for message in model.messages if low <= message[0] and message[1] <= high]
    assert [bytes(message) for message in block.messages(first, last)] == inside
    if high >= start:  # the store hands out blocks that the range reaches
        assert bytes(block.cut(low, high)) == model.text(low, high)


@given(starts, appends, st.randoms(use_true_random=False))
def test_the_append_at_a_position_ends_where_its_messages_do(
    start: int, batches: list[Messages], chance: random.Random
) -> None:
    block, model = merged(start, batches, chance), Model(start, batches)
    for position in range(start, model.end):
        there = next(batch for batch in model.appends if batch[0][0] <= position < batch[-1][1])
        assert block.append_after(position) == [end for _, end in there if end > position]
    assert block.append_after(model.end) == []
