"""Base protocol, 9 to 11: extensions, security, and the default port."""

from pathlib import Path

import pytest

from perennial.settings import Settings
from tests.harness.server import ServerProcess
from tests.spec.streams import JSON, TEXT, Stream


def test_what_is_unknown_is_ignored(stream: Stream) -> None:
    """9.1: "Extensions MUST NOT break base protocol semantics"; "base protocol operations MUST remain
    functional without extension support": parameters and headers of other extensions change nothing."""
    stream.create(b"data", x_tenant="a", stream_colour="blue")
    stream.append(b" more", stream_priority="high")
    assert stream.ask("GET", "?offset=-1&table=users&where=id%3D1").body == b"data more"


def test_extensions_are_only_for_those_who_ask(stream: Stream) -> None:
    """9: "Extensions SHOULD be pure supersets of the base protocol"; "New parameters and headers SHOULD be
    optional, and servers SHOULD provide sensible defaults"; "Extensions SHOULD work with any version of a
    client": without asking for another form, a client gets what the base protocol says."""
    stream.create(b"[1]", JSON)
    for accept in ("*/*", "application/json", "text/event-stream", "text/html, */*;q=0.1"):
        answer = stream.get("-1", accept=accept)
        assert (answer.body, answer.headers["content-type"]) == (b"[1]", JSON)


@pytest.mark.parametrize("token", [None, "wrong", ""])
def test_without_a_token_nothing_is_done_or_shown(
    guarded_server: ServerProcess, guarded_stream: Stream, token: str | None
) -> None:
    """10.1: "Implementations MUST provide appropriate access controls to prevent unauthorized stream
    creation, modification, or deletion"; 10.2: "servers MUST enforce access controls even when using shared
    caches"."""
    guarded_stream.create(b"secret")
    stranger = Stream(guarded_server.port, guarded_stream.path.removeprefix("/v1/stream/"))
    if token is not None:
        stranger.common["Authorization"] = f"Bearer {token}"
    answers = [
        stranger.put(),
        stranger.post(b"x", TEXT),
        stranger.close(),
        stranger.delete(),
        stranger.get(),
        stranger.head(),
        stranger.long_poll("-1"),
        stranger.ask("GET", "?offset=-1&live=sse"),
    ]
    assert [answer.status for answer in answers] == [401] * 8
    assert not any(b"secret" in answer.body for answer in answers)
    assert all(answer.headers["cache-control"] == "no-store" for answer in answers)
    assert guarded_stream.read() == b"secret"


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "a/../b",
        "a/./b",
        "a//b",
        "a/",
        "%2e%2e/x",
        "a%00b",
        "%ff",
        "%zz",
        "x" * 2000,
        "..%2f..%2fetc",
    ],
)
def test_names_do_not_walk_out_of_their_tree(open_server: ServerProcess, name: str) -> None:
    """10.2: "Servers SHOULD validate and sanitize stream URLs to prevent path traversal attacks and ensure
    URL components are within acceptable limits"."""
    stream = Stream(open_server.port, name)
    assert stream.put().status == 400
    assert stream.get().status == 400


def test_types_cannot_be_confused(stream: Stream) -> None:
    """10.4: "Servers MUST validate that appended content types match the stream's declared content type"."""
    stream.create(b"[1]", JSON)
    assert stream.post(b"<script>", "text/html").status == 409
    assert stream.get().headers["content-type"] == JSON


def test_requests_beyond_the_rate_are_429(tmp_path: Path) -> None:
    """10.5: "Servers SHOULD implement rate limiting to prevent abuse. The 429 Too Many Requests response code
    indicates rate limit exhaustion"."""
    with ServerProcess(tmp_path / "data", {"PERENNIAL_RATE_REQUESTS": "5"}) as server:
        stream = Stream(server.port, "a")
        answers = [stream.get() for _ in range(60)]
    refused = next(answer for answer in answers if answer.status != 404)
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) >= 1


def test_sequences_cannot_go_back(stream: Stream) -> None:
    """10.6: "Servers MUST reject sequence regressions to maintain stream integrity"."""
    stream.create()
    stream.append(b"2", stream_seq="2")
    assert stream.post(b"1", stream_seq="1").status == 409
    assert stream.read() == b"2"


def test_every_answer_forbids_sniffing_and_allows_embedding(stream: Stream) -> None:
    """10.7: X-Content-Type-Options: nosniff: "Servers SHOULD include this header on all responses";
    Cross-Origin-Resource-Policy: "Servers SHOULD include this header"."""
    tail = stream.create(b"data").next_offset
    answers = [
        stream.put(),
        stream.put(b"", JSON),
        stream.post(b"x"),
        stream.post(b""),
        stream.head(),
        stream.get(),
        stream.get(if_none_match="*"),
        stream.get("bad"),
        stream.long_poll("-1"),
        stream.ask("OPTIONS"),
        stream.ask("PATCH"),
        stream.post(b"x" * ((1 << 20) + 1)),
        stream.close(),
        stream.long_poll(tail),
        stream.delete(),
        stream.get(),
    ]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff", answer
        assert answer.headers["cross-origin-resource-policy"] == "cross-origin", answer
    stream.create()
    with stream.sse("-1") as events:
        assert events.headers["x-content-type-options"] == "nosniff"
        assert events.headers["cross-origin-resource-policy"] == "cross-origin"


def test_errors_and_metadata_are_not_stored(stream: Stream) -> None:
    """10.7: Cache-Control: no-store: "Servers SHOULD include this header on HEAD responses and on responses
    containing sensitive or user-specific stream data"."""
    assert stream.get().headers["cache-control"] == "no-store"
    assert stream.create().headers["cache-control"] == "no-store"
    assert stream.head().headers["cache-control"] == "no-store"
    assert stream.get("bad").headers["cache-control"] == "no-store"


def test_the_default_port_is_the_protocols() -> None:
    """11.1: "Standalone server implementations SHOULD use port 4437 as the default when no explicit port is
    configured"."""
    assert Settings().port == 4437
