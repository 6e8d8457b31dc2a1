"""Pages of a feed: how they are cut, and what happens to the log while one is being read."""

from collections.abc import Iterator

import pytest

from perennial.protocol.names import DEFAULT_BUCKET
from perennial.service import feed
from perennial.service.feed import END_OF_TIME, ROW_BYTES, FeedPage, StreamFilter
from perennial.service.feed_rows import Rows
from perennial.store.blocks import Block
from perennial.store.feedlog import INLINE_LIMIT
from tests.builders import JSON, append, create
from tests.service.world import World


def page(world: World, after: int = 0, limit: int = 1 << 30, stream: str | None = None) -> FeedPage:
    return world.service.feed.page(DEFAULT_BUCKET, after, END_OF_TIME, StreamFilter(stream), limit)


def kept(rows: Rows) -> list[tuple[int, bytes]]:
    """Positions and payloads of the rows that count."""
    found = []
    at = 0
    for index, length in enumerate(rows.lengths.tolist()):
        if rows.keep is None or rows.keep[index]:
            found.append((int(rows.positions[index]), bytes(rows.payload[at : at + length])))
        at += length
    return found


def read(source: FeedPage) -> list[tuple[int, bytes]]:
    return [row for rows in source for row in kept(rows)]


@pytest.mark.parametrize("rows_per_page", [1, 2, 3, 7])
def test_a_page_has_as_many_rows_as_fit(world: World, rows_per_page: int) -> None:
    world.create(body=b"[1,2,3]", content_type=JSON)
    world.append(body=b"[4,5,6,7,8]")
    world.append(body=b"9")
    limit = rows_per_page * (ROW_BYTES + 1)
    position, pages = 0, []
    while position < 9:
        source = page(world, position, limit)
        pages.append([payload for _, payload in read(source)])
        assert source.next_position == position + len(pages[-1])
        position = source.next_position
    assert b"".join(payload for each in pages for payload in each) == b"123456789"
    assert {len(each) for each in pages[:-1]} <= {rows_per_page}


def test_a_row_larger_than_the_limit_is_a_page(world: World) -> None:
    world.create()
    for size in (10, 100_000, 10):
        world.append(body=b"x" * size)
    source = page(world, 1, limit=50)
    assert [len(payload) for _, payload in read(source)] == [100_000]
    assert source.next_position == 2


def test_a_search_that_finds_little_ends_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a filter over a long feed is one long silence."""
    monkeypatch.setattr(feed, "STEP_BYTES", 1)
    monkeypatch.setattr(feed, "SEARCHED_BYTES", 300)
    world.create("s")
    world.create("wanted")
    for _ in range(20):
        world.append("s", b"x" * 50)
    world.append("wanted", b"here")
    positions = [0]
    found: list[tuple[int, bytes]] = []
    while not found:
        source = page(world, positions[-1], stream="wanted")
        found = read(source)
        positions.append(source.next_position)
    assert found == [(21, b"here")]
    assert positions == sorted(set(positions))
    assert (positions[-1], len(positions) > 4) == (21, True)


def test_a_grave_that_is_closed_while_a_page_is_read_stays_closed_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sealing has carried it out in the log, but the page has the old log in its hands."""
    monkeypatch.setattr(feed, "STEP_BYTES", 1)
    for name in ("dead", "alive"):
        world.create(name)
    for _ in range(3):
        world.append("dead", b"dead")
        world.append("alive", b"alive")
    world.delete("dead")
    steps = iter(page(world))
    found = kept(next(steps))
    graves = world.service.graves.of(DEFAULT_BUCKET)
    assert graves
    graves.clear()  # as sealing does when it is done
    found += [row for rows in steps for row in kept(rows)]
    assert [payload for _, payload in found] == [b"alive"] * 3


def test_large_payloads_that_go_while_a_page_is_read_are_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "STEP_BYTES", 1)
    world.create()
    for number in range(4):
        world.append(body=b"%d" % number * INLINE_LIMIT)
    steps = iter(page(world))
    assert [payload[:1] for _, payload in kept(next(steps))] == [b"0"]
    world.publish(3 * INLINE_LIMIT)
    world.settle()
    world.collect_garbage()
    assert [(position, payload[:1]) for rows in steps for position, payload in kept(rows)] == [(4, b"3")]


@pytest.mark.parametrize("limit", [1, 20_000, 100_000, 1 << 30])
def test_large_payloads_come_in_steps_of_bytes_that_are_read(
    world: World, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """A stored value that only points at payloads is small, and what it points at is not."""
    monkeypatch.setattr(feed, "STEP_BYTES", 2 * INLINE_LIMIT)
    world.create(content_type=JSON)
    messages = [b'"%d %s"' % (number, b"x" * (INLINE_LIMIT // 2)) for number in range(24)]
    for start in range(0, 24, 4):
        world.append(body=b"[" + b",".join(messages[start : start + 4]) + b"]")
    found: list[tuple[int, bytes]] = []
    while len(found) < 24:
        for rows in page(world, len(found), limit):
            assert len(rows.payload) <= 4 * len(messages[-1])
            found += kept(rows)
    assert found == list(enumerate(messages, 1))


def test_only_what_is_wanted_is_fetched(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large payloads stand elsewhere; the others' are not looked up."""
    for name in ("a", "b"):
        world.create(name)
    for name in ("a", "b", "a"):
        world.send(name, append(name.encode() * INLINE_LIMIT))
    world.settle()
    looked_up = []
    blocks = world.store.blocks

    def noticed(stream_id: int, start: int, end: int) -> Iterator[Block]:
        looked_up.append(stream_id)
        return blocks(stream_id, start, end)

    monkeypatch.setattr(world.store, "blocks", noticed)
    assert [payload[:1] for _, payload in read(page(world, stream="b"))] == [b"b"]
    assert len(looked_up) == 1


def test_an_empty_feed_has_an_empty_page(world: World) -> None:
    source = page(world)
    assert (read(source), source.next_position) == ([], 0)
    world.do("s", create())
    assert read(page(world)) == []
