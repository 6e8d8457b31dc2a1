"""Feed positions: they never repeat and never go back, so whoever keeps the last one misses nothing."""

import threading
import time
from collections.abc import Callable
from functools import partial

from tests.extensions.api import BYTES, JSON, TEXT, Api, Bucket, parse_page
from tests.harness.server import ServerProcess

WRITERS = 3
MESSAGES = 120


def test_positions_survive_a_restart_and_a_crash(own_server: ServerProcess) -> None:
    bucket = Api(own_server.port).new_bucket()
    bucket.create("s", b"[1,2,3]", JSON)
    bucket.append("s", b"4", JSON)
    assert bucket.feed(after=3).positions == [4]
    own_server.kill()
    own_server.start()
    assert bucket.feed().positions == [1, 2, 3, 4]
    bucket.delete("s")
    own_server.restart()
    page = bucket.feed()
    assert (page.rows, page.next_position, page.head_position) == ([], 4, 4)
    bucket.create("t", b"[5]", JSON)
    assert bucket.feed().positions == [5]


def test_positions_go_on_in_a_bucket_that_is_deleted_and_made_again(own_server: ServerProcess) -> None:
    bucket = Api(own_server.port).new_bucket()
    bucket.create("s", b"[1,2,3]", JSON)
    bucket.delete("s")
    assert bucket.delete_itself().status == 204
    assert bucket.api.ask("GET", bucket.feed_path(after=3)).status == 404
    assert bucket.create_itself().status == 201
    page = bucket.feed(after=3)
    assert (page.rows, page.next_position, page.head_position) == ([], 3, 3)
    bucket.create("s", b"[7]", JSON)
    assert bucket.feed().positions == [4]
    bucket.delete("s")
    bucket.delete_itself()
    own_server.restart()
    bucket.create_itself()
    assert bucket.feed().head_position == 4
    bucket.create("s", b"[8]", JSON)
    assert bucket.feed().positions == [5]


def test_a_consumer_sees_everything_exactly_once_through_crashes_and_restarts(
    own_server: ServerProcess,
) -> None:
    """Writers retry as idempotent producers, the consumer keeps its position; the server comes and goes."""
    bucket = Api(own_server.port).new_bucket()
    for writer in range(WRITERS):
        bucket.create(f"w{writer}", b"", BYTES)
    threads = [threading.Thread(target=write, args=(bucket, f"w{n}")) for n in range(WRITERS)]
    rows: list[tuple[str, int, bytes]] = []
    positions: list[int] = []
    consumer = threading.Thread(target=consume, args=(bucket, rows, positions))
    for thread in (*threads, consumer):
        thread.start()
    for end in (own_server.stop, own_server.kill, own_server.kill):
        target = min(len(positions) + WRITERS * MESSAGES // 6, WRITERS * MESSAGES)
        wait_until(partial(holds, positions, target))
        end()
        own_server.start()
    for thread in (*threads, consumer):
        thread.join()
    assert positions == sorted(set(positions)), "strictly increasing"
    for writer in range(WRITERS):
        own = [(offset, payload) for name, offset, payload in rows if name == f"w{writer}"]
        assert b"".join(payload for _, payload in own) == bucket.get(f"w{writer}").body
        assert [payload for _, payload in own] == [message(number) for number in range(MESSAGES)]
        assert [offset for offset, _ in own] == sorted(offset for offset, _ in own)


def test_a_consumer_can_tell_that_it_fell_behind_a_trim(own_server: ServerProcess) -> None:
    """`Feed-Next-Position` minus `after` counts the rows that were; fewer came: some were taken away."""
    bucket = Api(own_server.port).new_bucket()
    bucket.create("kept", b"[1,2]", JSON)
    bucket.create("trimmed", b"[1,2,3]", JSON)
    bucket.create("deleted", b"[1]", JSON)
    page = bucket.feed(until=2)
    position = page.next_position
    bucket.publish("trimmed", "0000000000000002")
    bucket.delete("deleted")
    bucket.append("kept", b"3", JSON)
    for _ in range(2):
        page = bucket.feed(after=position)
        assert page.next_position - position - len(page.rows) == 3
        assert [row["stream"] for row in page.rows] == ["trimmed", "kept"]
        own_server.restart()


def message(number: int) -> bytes:
    return b"%d;" % number + b"." * (number % 7) * (3000 if number % 10 == 0 else 1)


def write(bucket: Bucket, stream: str) -> None:
    for number in range(MESSAGES):
        producer = {"producer_id": stream, "producer_epoch": "0", "producer_seq": str(number)}
        while True:
            try:
                answer = bucket.try_append(stream, message(number), BYTES, **producer)
            except OSError:
                time.sleep(0.01)  # the server is away
                continue
            if answer.status in (200, 204):
                break
            assert answer.status == 503, answer


def consume(bucket: Bucket, rows: list[tuple[str, int, bytes]], positions: list[int]) -> None:
    position = 0
    while len(rows) < WRITERS * MESSAGES:
        path = bucket.feed_path(after=position, live="long-poll", limit=5000)
        try:
            answer = bucket.api.ask("GET", path)
        except OSError:
            time.sleep(0.01)
            continue
        if answer.status == 503:  # it is starting
            continue
        assert answer.status == 200, answer
        page = parse_page(answer)
        assert page.next_position >= position
        assert page.next_position - position == len(page.rows), "no holes here"
        rows.extend((row["stream"], row["offset"], row["payload"]) for row in page.rows)
        positions.extend(page.positions)
        position = page.next_position


def holds(positions: list[int], count: int) -> bool:
    return len(positions) >= count


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_proxy_bucket_has_a_feed_for_those_with_a_token(own_server: ServerProcess) -> None:
    own_server.env["PERENNIAL_AUTH_TOKENS"] = "secret"
    own_server.restart()
    outside, inside = Api(own_server.port), Api(own_server.port, "secret")
    for method, path in (("GET", "/v1/feed/proxy"), ("HEAD", "/v1/feed/proxy"), ("GET", "/ds/proxy/streams")):
        assert outside.ask(method, path).status == 401
        assert Api(own_server.port, "wrong").ask(method, path).status in (401, 403)
        assert inside.ask(method, path).status == 200
    assert inside.ask("PUT", "/ds/proxy").status == 409
    assert inside.ask("DELETE", "/ds/proxy").status == 409
    assert inside.ask("PUT", "/ds/proxy/x", {"Content-Type": TEXT}).status == 405
