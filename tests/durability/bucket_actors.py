"""Actors for the extensions: snapshots that replace history, and the feed of a bucket."""

import hashlib

from tests.durability.actors import TEXT, Actor, read_all
from tests.extensions.api import parse_bootstrap, parse_page
from tests.harness.wire import Answer, Wire

BUCKET = "crash-test"


class Snapshotter(Actor):
    """Appends to a stream and publishes snapshots of it: none is lost, torn, or ahead of its data."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name, seed)
        self._path = f"/ds/{BUCKET}/{name}"
        self.lines: list[bytes] = []  # all that may be in the stream, in order
        self.published = 0  # how many lines the newest acknowledged snapshot stands for
        self.unsure_line = False  # about the last one
        self.unsure_snapshot: int | None = None

    def prepare(self, http: Wire) -> None:
        assert http.request("PUT", f"/ds/{BUCKET}").status in (201, 409)
        assert http.request("PUT", self._path, TEXT).status == 201

    def act(self, http: Wire) -> None:
        if self.unsure_line or self.unsure_snapshot is not None:
            self.verify(http)  # cut off the last time: see how that ended
        if self.chance.random() < 0.8:
            self.lines.append(
                f"{self.name} {len(self.lines)}{'.' * self.chance.choice([0, 2000])}\n".encode()
            )
            self.unsure_line = True
            assert http.request("POST", self._path, TEXT, self.lines[-1]).status == 204
            self.unsure_line = False
        else:
            count = self.chance.randint(self.published, len(self.lines))
            self.unsure_snapshot = count
            path = f"{self._path}/snapshot/{self._offset(count):016d}"
            answer = http.request("PUT", path, {}, self._summary(count))
            assert answer.status == 204, answer
            self.published, self.unsure_snapshot = count, None

    def verify(self, http: Wire) -> None:
        answer = http.request("GET", f"{self._path}/bootstrap")
        assert answer.status == 200, answer
        self._settle(answer)
        snapshot, *messages = parse_bootstrap(answer).parts
        assert b"".join(part.body for part in messages) == b"".join(self.lines[self.published :])
        assert snapshot.body in (b"", self._summary(self.published)), "a snapshot of something else"
        if self.published:
            assert snapshot.body, "an acknowledged snapshot is missing"
            assert http.request("GET", f"{self._path}?offset=-1").status == 410
        rest = http.request("GET", f"{self._path}?offset={self._offset(self.published):016d}")
        assert b"".join(self.lines[self.published :]).startswith(rest.body)

    def _settle(self, answer: Answer) -> None:
        """What was under way has happened or not: take it as it is."""
        if self.unsure_line and int(answer.next_offset) < self._offset(len(self.lines)):
            self.lines.pop()
        self.unsure_line = False
        if self.unsure_snapshot is not None:
            found = max(0, int(answer.headers["stream-snapshot-offset"]))  # -1: none
            assert found in (self._offset(self.published), self._offset(self.unsure_snapshot)), answer
            if found == self._offset(self.unsure_snapshot):
                self.published = self.unsure_snapshot
            self.unsure_snapshot = None

    def _offset(self, count: int) -> int:
        return sum(map(len, self.lines[:count]))

    def _summary(self, count: int) -> bytes:
        """Sometimes larger than a stored piece, always telling of the lines it stands for."""
        return hashlib.sha256(b"".join(self.lines[:count])).digest() * (1 + 2000 * (count % 5))


class FeedFollower(Actor):
    """Follows a stream through the feed of its bucket: what it has seen stays, and nothing is missing."""

    def __init__(self, name: str, seed: int, stream: str) -> None:
        super().__init__(name, seed)
        self.stream = stream
        self.seen: list[tuple[int, bytes]] = []
        self.position = 0

    def act(self, http: Wire) -> None:
        rows, self.position, _ = self._page(http, self.position)
        self.seen += rows

    def verify(self, http: Wire) -> None:
        rows: list[tuple[int, bytes]] = []
        position, head = 0, -1
        while position != head:
            page, position, head = self._page(http, position)
            rows += page
        assert rows[: len(self.seen)] == self.seen, "something that was read before is gone, or another"
        positions = [position for position, _ in rows]
        assert positions == sorted(set(positions))
        assert b"".join(payload for _, payload in rows) == read_all(http, self.stream)

    def _page(self, http: Wire, after: int) -> tuple[list[tuple[int, bytes]], int, int]:
        answer = http.request("GET", f"/v1/feed/default?stream={self.stream}&after={after}")
        assert answer.status == 200, answer
        page = parse_page(answer)
        rows = [(row["position"], row["payload"]) for row in page.rows]
        return rows, page.next_position, page.head_position
