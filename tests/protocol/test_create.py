import pytest

from perennial.protocol.create import (
    Anchor,
    Create,
    CreateOutcome,
    Exists,
    decide_create,
    decide_fork,
    lineage_up_to,
)
from perennial.protocol.rejections import (
    ConfigConflict,
    ContentTypeConflict,
    Malformed,
    NameTaken,
    OffsetTrimmed,
    SourceGone,
    SourceMissing,
)
from perennial.protocol.state import (
    Appended,
    Closed,
    Created,
    ForkOrigin,
    ForkTaken,
    Snapshot,
    SnapshotPublished,
    SoftDeleted,
    StreamState,
)
from tests.builders import BYTES, JSON, NOW_MS, TEXT, appended, closed, create, fork, inherits, stream

ID = 42
TAIL = Anchor(aligned=True, following=())


def decide(command: Create, existing: StreamState | None = None) -> CreateOutcome:
    return decide_create(existing, command, ID, NOW_MS)


def decide_on(source: StreamState | None, command: Create, anchor: Anchor | None = TAIL) -> CreateOutcome:
    return decide_fork(source, anchor, command, ID, NOW_MS)


# A plain stream


def test_an_empty_stream_is_one_record() -> None:
    assert decide(create(content_type=TEXT)) == [Created(id=ID, content_type=TEXT, at_ms=NOW_MS)]


def test_without_a_content_type_it_holds_bytes() -> None:
    assert decide(create(content_type=None)) == [Created(id=ID, content_type=BYTES, at_ms=NOW_MS)]


def test_lifetime_is_recorded() -> None:
    assert decide(create(ttl_seconds=60)) == [Created(ID, BYTES, NOW_MS, ttl_seconds=60)]
    assert decide(create(expires_at_ms=5)) == [Created(ID, BYTES, NOW_MS, expires_at_ms=5)]


def test_a_body_is_the_first_append() -> None:
    assert decide(create(b"abc")) == [Created(ID, BYTES, NOW_MS), Appended(b"abc", (3,), NOW_MS)]


def test_a_json_body_is_flattened_like_an_append() -> None:
    assert decide(create(b"[1, [2]]", JSON)) == [Created(ID, JSON, NOW_MS), Appended(b"1[2]", (1, 4), NOW_MS)]


def test_an_empty_json_array_is_an_empty_stream() -> None:
    assert decide(create(b"[]", JSON)) == [Created(ID, JSON, NOW_MS)]


def test_a_broken_json_body_creates_nothing() -> None:
    assert isinstance(decide(create(b"{", JSON)), Malformed)


def test_a_stream_may_be_born_closed() -> None:
    assert decide(create(closed=True)) == [Created(ID, BYTES, NOW_MS), Closed(NOW_MS)]
    assert decide(create(b"[]", JSON, closed=True)) == [Created(ID, JSON, NOW_MS), Closed(NOW_MS)]


def test_a_stream_may_be_born_closed_with_its_whole_content() -> None:
    assert decide(create(b"abc", closed=True)) == [
        Created(ID, BYTES, NOW_MS),
        Appended(b"abc", (3,), NOW_MS, closes=True),
    ]


# The same again


@pytest.mark.parametrize(
    ("existing", "command"),
    [
        (stream(), create()),
        (stream(), create(content_type=None)),
        (stream(appended(b"abc")), create(b"other body")),
        (stream(content_type="application/json"), create(content_type="APPLICATION/JSON")),
        (stream(content_type="text/plain; charset=utf-8"), create(content_type="text/plain")),
        (stream(ttl_seconds=60), create(ttl_seconds=60)),
        (stream(expires_at_ms=7), create(expires_at_ms=7)),
        (stream(closed()), create(closed=True)),
        (stream(ForkTaken()), create()),
    ],
)
def test_an_equal_configuration_exists_already(existing: StreamState, command: Create) -> None:
    assert decide(command, existing) == Exists()


@pytest.mark.parametrize(
    ("existing", "command", "difference"),
    [
        (stream(), create(content_type=TEXT), "Content-Type"),
        (stream(content_type=TEXT), create(content_type=None), "Content-Type"),
        (stream(), create(ttl_seconds=60), "Stream-TTL"),
        (stream(ttl_seconds=60), create(), "Stream-TTL"),
        (stream(ttl_seconds=60), create(ttl_seconds=61), "Stream-TTL"),
        (stream(ttl_seconds=60), create(expires_at_ms=60), "Stream-TTL"),
        (stream(), create(expires_at_ms=7), "Stream-Expires-At"),
        (stream(expires_at_ms=7), create(), "Stream-Expires-At"),
        (stream(expires_at_ms=7), create(expires_at_ms=8), "Stream-Expires-At"),
        (stream(), create(closed=True), "Stream-Closed"),
        (stream(closed()), create(), "Stream-Closed"),
        (stream(), fork(), "Stream-Forked-From"),
    ],
)
def test_another_configuration_conflicts_and_is_named(
    existing: StreamState, command: Create, difference: str
) -> None:
    assert decide(command, existing) == ConfigConflict(difference)


def test_a_repeated_put_does_not_look_at_its_body() -> None:
    assert decide(create(b"{", JSON), stream(content_type=JSON)) == Exists()


def test_a_name_that_forks_hold_on_to_is_taken() -> None:
    existing = stream(ForkTaken(), SoftDeleted())
    assert decide(create(), existing) == NameTaken()
    assert decide(fork(), existing) == NameTaken()


# A fork


def created_fork(outcome: CreateOutcome) -> Created:
    assert isinstance(outcome, list), outcome
    first = outcome[0]
    assert isinstance(first, Created)
    return first


def test_a_fork_takes_all_there_is_by_default() -> None:
    source = stream(appended(b"abcdef"))
    created = created_fork(decide_on(source, fork()))
    assert created.lineage == inherits((1, 6))
    assert created.origin == ForkOrigin("default", "source", 6, 0)
    assert (created.id, created.content_type, created.at_ms) == (ID, BYTES, NOW_MS)


@pytest.mark.parametrize("offset", [0, 1, 3, 6])
def test_a_fork_takes_the_bytes_before_its_offset(offset: int) -> None:
    created = created_fork(decide_on(stream(appended(b"abcdef")), fork(offset=offset)))
    assert created.lineage == inherits((1, offset))


def test_a_fork_of_bytes_may_reach_into_the_append_after_its_offset() -> None:
    source = stream(appended(b"abc"), appended(b"defgh"))
    anchor = Anchor(aligned=True, following=(8,))
    assert created_fork(decide_on(source, fork(offset=3, sub_offset=2), anchor)).lineage == inherits((1, 5))
    assert created_fork(decide_on(source, fork(offset=3, sub_offset=5), anchor)).lineage == inherits((1, 8))
    assert isinstance(decide_on(source, fork(offset=3, sub_offset=6), anchor), Malformed)


def test_a_fork_of_json_reaches_by_messages() -> None:
    source = stream(appended(b"123456", ends=(1, 3, 6)), content_type=JSON)
    anchor = Anchor(aligned=True, following=(1, 3, 6))
    assert created_fork(decide_on(source, fork(offset=0, sub_offset=1), anchor)).lineage == inherits((1, 1))
    assert created_fork(decide_on(source, fork(offset=0, sub_offset=2), anchor)).lineage == inherits((1, 3))
    assert created_fork(decide_on(source, fork(offset=0, sub_offset=3), anchor)).lineage == inherits((1, 6))
    assert isinstance(decide_on(source, fork(offset=0, sub_offset=4), anchor), Malformed)


def test_a_fork_remembers_what_was_asked_and_not_what_came_of_it() -> None:
    source = stream(appended(b"123456", ends=(1, 3, 6)), content_type=JSON)
    anchor = Anchor(aligned=True, following=(1, 3, 6))
    created = created_fork(decide_on(source, fork(offset=0, sub_offset=2), anchor))
    assert created.origin == ForkOrigin("default", "source", 0, 2)


def test_nothing_follows_the_tail() -> None:
    source = stream(appended(b"abc"))
    assert isinstance(decide_on(source, fork(offset=3, sub_offset=1)), Malformed)
    assert isinstance(decide_on(source, fork(sub_offset=1)), Malformed)
    assert isinstance(decide_on(stream(), fork(sub_offset=1)), Malformed)


def test_a_fork_of_json_begins_between_messages() -> None:
    source = stream(appended(b"[1][2]", ends=(3, 6)), content_type=JSON)
    anchor = Anchor(aligned=False, following=(3, 6))
    assert isinstance(decide_on(source, fork(offset=1), anchor), Malformed)
    bytes_source = stream(appended(b"[1][2]"))
    assert created_fork(decide_on(bytes_source, fork(offset=1), anchor)).lineage == inherits((1, 1))


def test_a_fork_beyond_the_tail_is_malformed() -> None:
    assert isinstance(decide_on(stream(appended(b"abc")), fork(offset=4), None), Malformed)


def test_a_fork_below_what_is_retained_is_told_where_that_begins() -> None:
    """Also when the bytes there are gone, so that nothing can be looked up."""
    trimmed = stream(appended(b"abcdef"), SnapshotPublished(Snapshot(4, BYTES, size=1, blob=9, owner=1)))
    assert decide_on(trimmed, fork(offset=3), None) == OffsetTrimmed(4)


def test_a_fork_needs_a_source_that_is_there() -> None:
    assert decide_on(None, fork(), None) == SourceMissing()
    assert decide_on(stream(ForkTaken(), SoftDeleted()), fork()) == SourceGone()


def test_a_fork_holds_what_its_source_holds() -> None:
    source = stream(content_type="text/plain; charset=utf-8")
    assert created_fork(decide_on(source, fork())).content_type == "text/plain; charset=utf-8"
    assert created_fork(decide_on(source, fork(content_type="TEXT/plain"))).content_type == "TEXT/plain"
    refused = ContentTypeConflict("text/plain; charset=utf-8", JSON)
    assert decide_on(source, fork(content_type=JSON)) == refused


@pytest.mark.parametrize(
    ("source", "asked", "ttl_seconds", "expires_at_ms"),
    [
        ({}, {}, None, None),
        ({}, {"ttl_seconds": 5}, 5, None),
        ({}, {"expires_at_ms": 9}, None, 9),
        ({"ttl_seconds": 60}, {}, 60, None),
        ({"ttl_seconds": 60}, {"ttl_seconds": 600}, 600, None),
        ({"ttl_seconds": 60}, {"expires_at_ms": 9}, None, 9),
        ({"expires_at_ms": 7}, {}, None, 7),
        ({"expires_at_ms": 7}, {"ttl_seconds": 5}, 5, None),
        ({"expires_at_ms": 7}, {"expires_at_ms": 9}, None, 9),
    ],
)
def test_a_fork_inherits_its_lifetime_unless_it_is_given_one(
    source: dict[str, int], asked: dict[str, int], ttl_seconds: int | None, expires_at_ms: int | None
) -> None:
    created = created_fork(decide_on(stream(**source), fork(**asked)))  # type: ignore[arg-type]
    assert (created.ttl_seconds, created.expires_at_ms) == (ttl_seconds, expires_at_ms)


def test_a_fork_of_a_closed_stream_starts_open_unless_it_is_closed_itself() -> None:
    source = stream(appended(b"abc"), closed())
    assert len(decide_on(source, fork())) == 1  # type: ignore[arg-type]
    assert decide_on(source, fork(closed=True))[1] == Closed(NOW_MS)  # type: ignore[index]


def test_a_forks_body_follows_what_it_inherits() -> None:
    source = stream(appended(b"1"), content_type=JSON)
    outcome = decide_on(source, fork(body=b"[2,3]"))
    assert isinstance(outcome, list)
    assert outcome[1] == Appended(b"23", (1, 2), NOW_MS)
    assert isinstance(decide_on(source, fork(body=b"{")), Malformed)


# The same fork again


def existing_fork(**rest: int) -> StreamState:
    return stream(
        origin=ForkOrigin("default", "source", 6, 2), lineage=inherits((1, 8)), content_type=TEXT, **rest
    )


@pytest.mark.parametrize(
    "command",
    [
        fork(sub_offset=2),
        fork(offset=6, sub_offset=2),
        fork(offset=6, sub_offset=2, content_type=TEXT),
        fork(offset=6, sub_offset=2, ttl_seconds=60),
    ],
)
def test_an_equal_fork_exists_already_and_what_is_omitted_matches(command: Create) -> None:
    assert decide(command, existing_fork(ttl_seconds=60)) == Exists()


@pytest.mark.parametrize(
    ("command", "difference"),
    [
        (fork("elsewhere", 6, 2), "Stream-Forked-From"),
        (create(content_type=TEXT), "Stream-Forked-From"),
        (fork(offset=5, sub_offset=2), "Stream-Fork-Offset"),
        (fork(offset=6, sub_offset=3), "Stream-Fork-Sub-Offset"),
        (fork(offset=6), "Stream-Fork-Sub-Offset"),
        (fork(offset=8), "Stream-Fork-Offset"),
        (fork(offset=6, sub_offset=2, content_type=JSON), "Content-Type"),
        (fork(offset=6, sub_offset=2, ttl_seconds=61), "Stream-TTL"),
        (fork(offset=6, sub_offset=2, closed=True), "Stream-Closed"),
    ],
)
def test_another_fork_conflicts_and_the_difference_is_named(command: Create, difference: str) -> None:
    assert decide(command, existing_fork(ttl_seconds=60)) == ConfigConflict(difference)


# Where a fork's bytes are


def test_a_lineage_names_each_ancestor_once_and_ends_where_the_fork_begins() -> None:
    source = stream(appended(b"ghi"), id=3, lineage=inherits((1, 4), (2, 6)))
    assert lineage_up_to(source, 9) == inherits((1, 4), (2, 6), (3, 9))
    assert lineage_up_to(source, 7) == inherits((1, 4), (2, 6), (3, 7))
    assert lineage_up_to(source, 6) == inherits((1, 4), (2, 6))
    assert lineage_up_to(source, 5) == inherits((1, 4), (2, 5))
    assert lineage_up_to(source, 4) == inherits((1, 4))
    assert lineage_up_to(source, 1) == inherits((1, 1))
    assert lineage_up_to(source, 0) == inherits((1, 0))
