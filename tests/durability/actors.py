"""Actors that write to (or read from) a server which may die at any moment, and know what must be left.

Each has one connection at a time and a model of its own streams. What was acknowledged must be there, exactly
once and in order; what was under way when the server died may be there or not, but whole and at most once.
An actor of a new kind needs `act` and `verify`, and a line in the cast of `test_crash.py`.
"""

import json
import random
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from tests.harness.wire import Answer, Wire

ROOT = "/v1/stream/"
TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
CLOSE = {"Stream-Closed": "true"}


class Actor(ABC):
    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.chance = random.Random(f"{seed}/{name}")

    def prepare(self, http: Wire) -> None:  # noqa: B027 (most have nothing to prepare)
        """Before the curtain rises: the server is up and stays up."""

    @abstractmethod
    def act(self, http: Wire) -> None:
        """Do one thing. A `ConnectionError` may end it anywhere; remember what is then unknown."""

    @abstractmethod
    def verify(self, http: Wire) -> None:
        """The server is up and nobody acts: is everything there?"""


def put(http: Wire, name: str, headers: dict[str, str], body: bytes = b"") -> Answer:
    return http.request("PUT", ROOT + name, headers, body)


def post(http: Wire, name: str, headers: dict[str, str], body: bytes = b"") -> Answer:
    return http.request("POST", ROOT + name, headers, body)


def delete(http: Wire, name: str) -> Answer:
    return http.request("DELETE", ROOT + name)


def look(http: Wire, name: str) -> Answer:
    return http.request("HEAD", ROOT + name)


def read_all(http: Wire, name: str) -> bytes:
    """The bytes of a stream, chunk after chunk, every offset where the one before said."""
    content = b""
    while True:
        answer = http.request("GET", f"{ROOT}{name}?offset={len(content):016d}")
        assert answer.status == 200, answer
        content += answer.body
        assert answer.next_offset == f"{len(content):016d}"
        if "stream-up-to-date" in answer.headers:
            return content


def read_messages(http: Wire, name: str) -> list[dict[str, int]]:
    messages: list[dict[str, int]] = []
    offset = "-1"
    while True:
        answer = http.request("GET", f"{ROOT}{name}?offset={offset}")
        assert answer.status == 200, answer
        messages += json.loads(answer.body)
        offset = answer.next_offset
        if "stream-up-to-date" in answer.headers:
            return messages


class Writer(Actor):
    """Appends numbered lines to a stream it shares with others; sends each once, whatever happens."""

    def __init__(self, name: str, seed: int, stream: str) -> None:
        super().__init__(name, seed)
        self.stream = stream
        self.lines: list[bytes] = []
        self.ends: dict[int, int] = {}  # of the acknowledged lines, by number

    def prepare(self, http: Wire) -> None:
        assert put(http, self.stream, TEXT).status in (200, 201)

    def act(self, http: Wire) -> None:
        number = len(self.lines)
        line = f"{self.name} {number} {'.' * self.chance.choice([0, 10, 100, 5000])}\n".encode()
        self.lines.append(line)
        answer = post(http, self.stream, TEXT, line)
        assert answer.status == 204, answer
        self.ends[number] = int(answer.next_offset)

    def verify(self, http: Wire) -> None:
        content = read_all(http, self.stream)
        found = own_lines(content, self.name)
        numbers = [int(line.split()[1]) for line in found]
        assert found == [self.lines[number] for number in numbers], "a line is not as it was sent"
        assert numbers == sorted(set(numbers)), "lines out of order, or twice"
        assert self.ends.keys() <= set(numbers), "an acknowledged line is missing"
        for number, end in self.ends.items():
            line = self.lines[number]
            assert content[end - len(line) : end] == line, "a line is not where its acknowledgement said"


class Producer(Actor):
    """An idempotent producer: sends again until it is told, so everything is there exactly once."""

    def __init__(self, name: str, seed: int, stream: str) -> None:
        super().__init__(name, seed)
        self.stream = stream
        self.epoch = 0
        self.seq = -1
        self.acknowledged: list[bytes] = []
        self.pending: bytes | None = None
        self.attempts = 0

    def prepare(self, http: Wire) -> None:
        assert put(http, self.stream, TEXT).status in (200, 201)

    def act(self, http: Wire) -> None:
        if self.pending is None:
            self._next()
        self.attempts += 1
        answer = self._send(http, self.epoch, self.seq)
        assert answer.status == 200 or (answer.status == 204 and self.attempts > 1), answer
        assert answer.headers["producer-seq"] == str(self.seq)
        assert self.pending is not None
        self.acknowledged.append(self.pending)
        self.pending = None

    def verify(self, http: Wire) -> None:
        while self.pending is not None:
            self.act(http)
        assert own_lines(read_all(http, self.stream), self.name) == self.acknowledged
        if not self.acknowledged:
            return
        again = self._send(http, self.epoch, self.seq)
        assert (again.status, again.headers["producer-seq"]) == (204, str(self.seq)), again
        gap = self._send(http, self.epoch, self.seq + 2)
        assert (gap.status, gap.headers["producer-expected-seq"]) == (409, str(self.seq + 1)), gap
        if self.epoch:
            stale = self._send(http, self.epoch - 1, 0)
            assert (stale.status, stale.headers["producer-epoch"]) == (403, str(self.epoch)), stale
        self.act(http)

    def _next(self) -> None:
        if self.seq >= 0 and self.chance.random() < 0.03:
            self.epoch, self.seq = self.epoch + 1, -1
        self.seq += 1
        self.attempts = 0
        self.pending = f"{self.name} {self.epoch} {self.seq}\n".encode()

    def _send(self, http: Wire, epoch: int, seq: int) -> Answer:
        who = {"Producer-Id": self.name, "Producer-Epoch": str(epoch), "Producer-Seq": str(seq)}
        return post(http, self.stream, TEXT | who, self.pending or b"never to be seen\n")


class Batcher(Actor):
    """Appends batches of JSON messages: all of a batch or nothing."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name, seed)
        self.sizes: list[int] = []
        self.acknowledged: set[int] = set()

    def prepare(self, http: Wire) -> None:
        assert put(http, self.name, JSON).status == 201

    def act(self, http: Wire) -> None:
        batch, size = len(self.sizes), self.chance.choice([1, 2, 10, 200])
        self.sizes.append(size)
        body = json.dumps([{"batch": batch, "index": index} for index in range(size)])
        assert post(http, self.name, JSON, body.encode()).status == 204
        self.acknowledged.add(batch)

    def verify(self, http: Wire) -> None:
        messages = read_messages(http, self.name)
        found = sorted({message["batch"] for message in messages})
        whole = [{"batch": batch, "index": index} for batch in found for index in range(self.sizes[batch])]
        assert messages == whole, "a batch is torn, out of order, or there twice"
        assert self.acknowledged <= set(found), "an acknowledged batch is missing"


@dataclass
class Life:
    """One stream of a `Closer`, from creation to closure."""

    name: str
    headers: dict[str, str]
    created: bool = False
    content: bytes = b""  # acknowledged
    unsure: bytes = b""  # sent, and never acknowledged
    closing: bool = False  # asked for, with `unsure` if there is any
    closed: bool = False


class Closer(Actor):
    """Creates streams of all kinds, writes a little, and closes them in all the ways there are."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name, seed)
        self.lives: list[Life] = []

    def act(self, http: Wire) -> None:
        extra = self.chance.choice(
            [{}, {"Stream-TTL": "86400"}, {"Stream-Expires-At": "2099-12-31T23:59:59.000Z"}]
        )
        life = Life(
            f"{self.name}/{len(self.lives)}",
            {"Content-Type": self.chance.choice(["text/plain", "a/b"])} | extra,
        )
        self.lives.append(life)
        life.unsure = self.chance.choice([b"", b"born with this\n"])
        assert put(http, life.name, life.headers, life.unsure).status == 201
        life.created = True
        self._acknowledge(life)
        for number in range(self.chance.randrange(3)):
            life.unsure = f"line {number}\n".encode()
            assert post(http, life.name, life.headers, life.unsure).status == 204
            self._acknowledge(life)
        if self.chance.random() < 0.7:
            life.closing = True
            life.unsure = self.chance.choice([b"", b"last words\n"])
            answer = post(http, life.name, life.headers | CLOSE, life.unsure)
            assert (answer.status, answer.headers["stream-closed"]) == (204, "true"), answer
            life.closed = True
            self._acknowledge(life)

    def verify(self, http: Wire) -> None:
        for life in self.lives:
            self._verify(http, life)

    def _verify(self, http: Wire, life: Life) -> None:
        seen = look(http, life.name)
        if not life.created and seen.status == 404:
            return
        assert seen.status == 200, (life, seen)
        assert {name: seen.headers.get(name.lower()) for name in life.headers} == life.headers
        closed = seen.headers.get("stream-closed") == "true"
        content = read_all(http, life.name)
        assert content in (life.content, life.content + life.unsure), (life, content)
        assert not life.closed or closed, "an acknowledged close is undone"
        assert life.closing or not closed, "closed, and nobody asked for it"
        if life.closing and life.unsure:
            assert closed == (content != life.content), "last words and closure come together or not at all"
        if closed:
            late = post(http, life.name, life.headers, b"late")
            assert (late.status, late.headers["stream-closed"]) == (409, "true"), late

    def _acknowledge(self, life: Life) -> None:
        life.content += life.unsure
        life.unsure = b""


class Recreator(Actor):
    """Creates and deletes one name over and over: no generation may leak into the next, or come back."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name, seed)
        self.generation = 0
        self.possible: list[bytes | None] = [None]  # what may be there; None: no stream

    def act(self, http: Wire) -> None:
        if len(self.possible) > 1:
            self.verify(http)  # cut off the last time: see how that ended
        (now,) = self.possible
        if now is None:
            self.generation += 1
            content = f"generation {self.generation}\n".encode() * self.chance.choice([1, 50])
            self._try(content)
            assert put(http, self.name, TEXT, content).status == 201
        elif self.chance.random() < 0.5:
            content = now + f"generation {self.generation}, more\n".encode()
            self._try(content)
            assert post(http, self.name, TEXT, content[len(now) :]).status == 204
        else:
            self._try(None)
            assert delete(http, self.name).status == 204
        self.possible = self.possible[1:]

    def verify(self, http: Wire) -> None:
        found = None if look(http, self.name).status == 404 else read_all(http, self.name)
        assert found in self.possible, (found, self.possible)
        self.possible = [found]

    def _try(self, outcome: bytes | None) -> None:
        self.possible = [self.possible[0], outcome]


@dataclass
class Family:
    """A source and the forks of it that a `Forker` made."""

    source: str
    content: bytes
    created: bool = False
    forks: list["Fork"] = field(default_factory=list)
    deleting: bool = False
    deleted: bool = False


@dataclass
class Fork:
    name: str
    content: bytes
    created: bool = False
    unsure: bytes = b""
    deleting: bool = False
    deleted: bool = False


class Forker(Actor):
    """Forks streams, writes to the forks, and deletes sources and forks in any order."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name, seed)
        self.families: list[Family] = []

    def act(self, http: Wire) -> None:
        source = f"{self.name}/{len(self.families)}"
        family = Family(source, source.encode() * 5)
        self.families.append(family)
        assert put(http, source, TEXT, family.content).status == 201
        family.created = True
        for number in range(self.chance.randint(1, 2)):
            fork = self._fork(http, family, f"{source}/fork-{number}")
            fork.unsure = b" and more"
            assert post(http, fork.name, TEXT, fork.unsure).status == 204
            fork.content, fork.unsure = fork.content + fork.unsure, b""
        if self.chance.random() < 0.6:
            family.deleting = True
            assert delete(http, source).status == 204
            family.deleted = True
        for fork in family.forks:
            if self.chance.random() < 0.4:
                fork.deleting = True
                assert delete(http, fork.name).status == 204
                fork.deleted = True

    def _fork(self, http: Wire, family: Family, name: str) -> Fork:
        at = self.chance.randint(0, len(family.content))
        fork = Fork(name, family.content[:at])
        family.forks.append(fork)
        headers = {"Stream-Forked-From": ROOT + family.source, "Stream-Fork-Offset": f"{at:016d}"}
        answer = put(http, name, headers)
        assert (answer.status, answer.next_offset) == (201, f"{at:016d}"), answer
        fork.created = True
        return fork

    def verify(self, http: Wire) -> None:
        for family in self.families:
            living = [self._verify_fork(http, fork) for fork in family.forks]
            self._verify_source(http, family, any(living))

    def _verify_fork(self, http: Wire, fork: Fork) -> bool:
        status = look(http, fork.name).status
        if status == 404:
            assert not fork.created or fork.deleting, (fork, "an acknowledged fork is missing")
            return False
        assert status == 200, (fork, status)
        assert not fork.deleted, (fork, "a deleted fork is back")
        assert read_all(http, fork.name) in (fork.content, fork.content + fork.unsure), fork
        return True

    def _verify_source(self, http: Wire, family: Family, has_forks: bool) -> None:
        status = look(http, family.source).status
        if status == 200:
            assert not family.deleted, (family, "a deleted source is back")
            assert read_all(http, family.source) == family.content
        elif family.deleting:
            # It stays as long as there are forks, out of reach, and leaves with the last one.
            assert status == (410 if has_forks else 404), (family, status)
        else:
            assert not family.created, (family, "an acknowledged source is missing")
            assert status == 404


class Observer(Actor):
    """Follows a stream: what it has seen once stays, however often the server dies."""

    def __init__(self, name: str, seed: int, stream: str) -> None:
        super().__init__(name, seed)
        self.stream = stream
        self.seen = b""

    def prepare(self, http: Wire) -> None:
        assert put(http, self.stream, TEXT).status in (200, 201)

    def act(self, http: Wire) -> None:
        live = self.chance.choice(["", "&live=long-poll"])
        answer = http.request("GET", f"{ROOT}{self.stream}?offset={len(self.seen):016d}{live}")
        assert answer.status in (200, 204), answer
        self.seen += answer.body

    def verify(self, http: Wire) -> None:
        content = read_all(http, self.stream)
        assert content.startswith(self.seen), "something that was read before is gone"


def own_lines(content: bytes, name: str) -> list[bytes]:
    return [line for line in content.splitlines(keepends=True) if line.startswith(f"{name} ".encode())]
