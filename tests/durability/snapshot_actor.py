"""Snapshots of several pieces, taken over by forks, while the server dies: whole or not at all, and no range
is ever trimmed without the snapshot that stands for it."""

import hashlib

from tests.durability.actors import TEXT, Actor
from tests.extensions.api import parse_bootstrap
from tests.harness.wire import Wire

BUCKET = "crash-folds"
# More than one stored piece, and not a whole number of them.
SNAPSHOT_BYTES = (3, 700_000, 2_500_000)


class Folder(Actor):
    """Appends to a stream of its own, folds it again and again, and forks what is folded.

    A snapshot begins with the number of messages it stands for; the rest follows from their hash. So whoever
    reads one can tell whether it is whole and of this stream.
    """

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name, seed)
        self._path = f"/ds/{BUCKET}/{name}"
        self.messages: list[bytes] = []
        self.acknowledged = 0  # messages
        self.folded = 0  # by the newest acknowledged snapshot
        self.forked = False

    def prepare(self, http: Wire) -> None:
        assert http.request("PUT", f"/ds/{BUCKET}").status in (201, 409)
        assert http.request("PUT", self._path, TEXT).status == 201

    def act(self, http: Wire) -> None:
        if self.acknowledged < len(self.messages):
            self.verify(http)  # the last append was cut off: see how that ended
        dice = self.chance.random()
        if dice < 0.6 or not self.messages:
            self._append(http)
        elif dice < 0.85:
            self._fold(http)
        elif self.forked:
            assert http.request("DELETE", f"{self._path}-fork").status in (204, 404)
            self.forked = False
        else:
            headers = {"Stream-Forked-From": self._path}
            assert http.request("PUT", f"{self._path}-fork", headers).status in (200, 201, 409)
            self.forked = True

    def _append(self, http: Wire) -> None:
        text = f"{self.name} {len(self.messages)}{'.' * self.chance.choice([0, 20_000])}\n"
        self.messages.append(text.encode())
        assert http.request("POST", self._path, TEXT, self.messages[-1]).status == 204
        self.acknowledged = len(self.messages)

    def _fold(self, http: Wire) -> None:
        count = self.chance.randint(self.folded, len(self.messages))
        snapshot = self._snapshot(count, self.chance.choice(SNAPSHOT_BYTES))
        answer = http.request("PUT", f"{self._path}/snapshot/{self._offset(count):016d}", {}, snapshot)
        # 410: an earlier one that was cut off had been published after all.
        assert answer.status in (204, 410), answer
        if answer.status == 204:
            self.folded = count

    def verify(self, http: Wire) -> None:
        self._verify(http, self._path, own=True)
        if http.request("HEAD", f"{self._path}-fork").status == 200:
            self._verify(http, f"{self._path}-fork", own=False)

    def _verify(self, http: Wire, path: str, own: bool) -> None:
        answer = http.request("GET", f"{path}/bootstrap")
        assert answer.status == 200, answer
        snapshot, *parts = parse_bootstrap(answer).parts
        offset = answer.headers["stream-snapshot-offset"]
        count = 0
        if offset != "-1":
            count = int(snapshot.body.partition(b";")[0])
            assert snapshot.body == self._snapshot(count, len(snapshot.body)), "torn, or of something else"
            assert int(offset) == self._offset(count)
        assert (http.request("GET", f"{path}?offset=-1").status == 410) == (count > 0), (
            "trimmed, and no snapshot"
        )
        kept = [part.body for part in parts]
        assert kept == self.messages[count : count + len(kept)], "a message that is kept is another, or gone"
        if own:
            assert count >= self.folded, "an acknowledged snapshot is gone"
            assert count + len(kept) >= self.acknowledged, "an acknowledged message is gone"
            del self.messages[count + len(kept) :]
            self.acknowledged, self.folded = len(self.messages), count
        rest = http.request("GET", f"{path}?offset={self._offset(count):016d}")
        assert b"".join(kept).startswith(rest.body)

    def _offset(self, count: int) -> int:
        return sum(map(len, self.messages[:count]))

    def _snapshot(self, count: int, size: int) -> bytes:
        digest = hashlib.sha256(b"".join(self.messages[:count])).hexdigest().encode()
        head = b"%d;" % count
        return (head + digest * (size // len(digest) + 1))[: max(size, len(head))]
