"""What the protocol leaves open and Perennial decided: the rules of docs/protocol.md, as far as they show."""

import time
from collections.abc import Callable

import pytest

from tests.harness.server import ServerProcess
from tests.harness.wire import Wire
from tests.spec.streams import BYTES, JSON, TEXT, Stream

# Offsets


@pytest.mark.parametrize("query", ["?offset={}", "?offset={}&live=long-poll", "?offset={}&live=sse"])
def test_an_offset_beyond_the_tail_is_400(stream: Stream, query: str) -> None:
    stream.create(b"data")
    assert stream.ask("GET", query.format("0000000000000005")).status == 400
    assert stream.ask("GET", query.format("9999999999999999_0000000000000000")).status == 400


@pytest.mark.parametrize("query", ["?offset={}", "?offset={}&live=long-poll", "?offset={}&live=sse"])
def test_an_offset_inside_a_json_message_is_400(stream: Stream, query: str) -> None:
    stream.create(b'["one","two"]', JSON)
    for inside in (1, 4, 6, 9):
        assert stream.ask("GET", query.format(f"{inside:016d}")).status == 400
    assert stream.get("0000000000000005").body == b'["two"]'


def test_an_offset_inside_a_body_of_a_byte_stream_is_served(stream: Stream) -> None:
    stream.create(b"hello", BYTES)
    stream.append(b" world")
    assert stream.get("0000000000000003").body == b"lo world"
    assert stream.get("0000000000000008").body == b"rld"


@pytest.mark.parametrize(
    "query",
    [
        "?offset=",
        "?offset=-1&offset=-1",
        "?offset=0000000000000000%0A",
        "?offset=+0000000000000000",
        "?offset=%ff",
    ],
)
def test_an_offset_is_given_once_and_whole(stream: Stream, query: str) -> None:
    stream.create(b"data")
    assert stream.ask("GET", query).status == 400


# Parameters and methods


@pytest.mark.parametrize("mode", ["", "true", "websocket", "SSE", "long_poll", "sse,long-poll"])
def test_another_live_mode_is_400(stream: Stream, mode: str) -> None:
    stream.create(b"data")
    assert stream.ask("GET", f"?offset=-1&live={mode}").status == 400


@pytest.mark.parametrize("cursor", ["abc", "-5", "", "1e9", "9" * 40])
def test_a_cursor_we_cannot_have_given_is_ignored(stream: Stream, cursor: str) -> None:
    stream.create(b"data")
    answer = stream.long_poll("-1", cursor)
    assert answer.status == 200
    assert answer.headers["stream-cursor"] == stream.long_poll("-1").headers["stream-cursor"]


@pytest.mark.parametrize("method", ["PATCH", "TRACE", "PROPFIND"])
def test_another_method_is_405_and_told_what_is_allowed(stream: Stream, method: str) -> None:
    answer = stream.ask(method)
    assert answer.status == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"}


def test_browsers_may_send_and_see_our_headers(stream: Stream) -> None:
    answer = stream.ask("OPTIONS", origin="https://example.com", access_control_request_method="PUT")
    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == "*"
    allowed = answer.headers["access-control-allow-headers"].replace(" ", "").split(",")
    for name in (
        "content-type",
        "authorization",
        "if-none-match",
        "traceparent",
        "stream-seq",
        "producer-id",
        "stream-forked-from",
    ):
        assert name in allowed
    assert "PUT" in answer.headers["access-control-allow-methods"]
    stream.create(b"data")
    exposed = stream.get(origin="https://example.com").headers["access-control-expose-headers"].lower()
    for name in (
        "stream-next-offset",
        "stream-cursor",
        "stream-up-to-date",
        "stream-closed",
        "etag",
        "location",
    ):
        assert name in exposed


def test_header_names_have_no_letter_case(stream: Stream) -> None:
    headers = {"CONTENT-TYPE": TEXT, "sTREAM-tTL": "60", "STREAM-CLOSED": "true"}
    with Wire(stream.port) as wire:
        assert wire.request("PUT", stream.path, headers, b"x").status == 201
    found = stream.head().headers
    assert (found["stream-ttl"], found["stream-closed"]) == ("60", "true")


# Names


@pytest.mark.parametrize("name", ["__ds", "__ds/subscriptions", "__ds/x/y", "%5F%5Fds/x"])
def test_the_reserved_name_is_404(open_server: ServerProcess, name: str) -> None:
    stream = Stream(open_server.port, name)
    assert [stream.put().status, stream.get().status, stream.post(b"x", TEXT).status] == [404, 404, 404]


@pytest.mark.parametrize(
    "name", ["a/b/c", "snapshot", "x/bootstrap", "__dsx", "a b", "é", "a%2Fb", "...", "a?b"]
)
def test_ordinary_names_are_ordinary(stream: Stream, name: str) -> None:
    encoded = "".join(f"%{byte:02X}" if byte > 126 or byte in b" ?" else chr(byte) for byte in name.encode())
    named = Stream(stream.port, f"{stream.path.removeprefix('/v1/stream/')}/{encoded}")
    named.create(b"data")
    assert named.read() == b"data"


def test_a_path_is_decoded_once(stream: Stream) -> None:
    name = stream.path.removeprefix("/v1/stream/")
    encoded, plain = Stream(stream.port, f"{name}%2Fx"), Stream(stream.port, f"{name}/x")
    encoded.create(b"data")
    assert plain.read() == b"data"
    assert Stream(stream.port, f"{name}%252Fx").get().status == 404


# Producers


@pytest.mark.parametrize("seq", [1, 7])
def test_an_unknown_producer_starts_at_zero(stream: Stream, seq: int) -> None:
    stream.create()
    answer = stream.produce(b"x", "p", 0, seq)
    assert answer.status == 409
    assert answer.headers["producer-expected-seq"] == "0"
    assert answer.headers["producer-received-seq"] == str(seq)
    assert stream.produce(b"x", "p", 3, 0).status == 200


def test_a_stale_epoch_on_a_closed_stream_hears_that_it_is_closed(stream: Stream) -> None:
    stream.create()
    stream.produce(b"x", "p", 5, 0, stream_closed="true")
    answer = stream.produce(b"y", "p", 4, 1)
    assert answer.status == 409
    assert answer.headers["stream-closed"] == "true"


def test_a_repeat_is_recognised_before_the_sequence_is_looked_at(stream: Stream) -> None:
    stream.create()
    assert stream.produce(b"x", "p", 0, 0, stream_seq="b").status == 200
    assert stream.produce(b"x", "p", 0, 0, stream_seq="b").status == 204
    assert stream.produce(b"x", "p", 0, 0, stream_seq="a").status == 204


# Conditional reads


@pytest.mark.parametrize(
    "form", ["{}", "W/{}", "*", '"other", {}', '{}, "other"', 'W/"a", W/{}', '"a,b" , {}']
)
def test_if_none_match_understands_lists_weak_tags_and_stars(stream: Stream, form: str) -> None:
    stream.create(b"data")
    etag = stream.get().headers["etag"]
    assert stream.get(if_none_match=form.format(etag)).status == 304


@pytest.mark.parametrize("form", ['"other"', "{bare}", '"{bare}x"', 'W/"other"', '"*"', ""])
def test_other_tags_do_not_match(stream: Stream, form: str) -> None:
    stream.create(b"data")
    bare = stream.get().headers["etag"].strip('"')
    assert stream.get(if_none_match=form.format(bare=bare)).status == 200


def test_a_created_again_stream_has_another_etag(stream: Stream) -> None:
    stream.create(b"data")
    before = stream.get().headers["etag"]
    stream.delete()
    stream.create(b"date")
    answer = stream.get(if_none_match=before)
    assert (answer.status, answer.body) == (200, b"date")


def test_an_etag_survives_a_repeated_put(stream: Stream) -> None:
    stream.create(b"data")
    before = stream.get().headers["etag"]
    stream.put(b"data")
    assert stream.get(if_none_match=before).status == 304


# Lifetimes


def test_a_window_is_restarted_by_reads_but_not_by_looking(
    stream: Stream, new_stream: Callable[[], Stream]
) -> None:
    """TTL is an idle window. Three streams share one wait of two seconds."""
    read, looked_at, conditional = stream, new_stream(), new_stream()
    for created in (read, looked_at, conditional):
        created.create(b"data", stream_ttl="1")
    etag = conditional.get().headers["etag"]
    ends = time.monotonic() + 1.6
    while time.monotonic() < ends:
        assert read.get("now").status == 200
        assert conditional.get(if_none_match=etag).status == 304
        looked_at.head()
        time.sleep(0.1)
    assert read.head().status == 200
    assert conditional.head().status == 200
    assert looked_at.head().status == 404


def test_a_live_reader_keeps_a_stream_alive(stream: Stream) -> None:
    stream.create(b"data", stream_ttl="1")
    with stream.sse("-1") as events:
        events.until_up_to_date()
        time.sleep(1.2)
        assert stream.head().status == 200
        stream.append(b"more")
        assert events.next().data == "more"


def test_metadata_tells_the_window_and_not_the_rest(stream: Stream) -> None:
    stream.create(stream_ttl="3600")
    time.sleep(0.01)
    assert stream.head().headers["stream-ttl"] == "3600"


# Errors


def test_an_error_has_a_code_and_a_sentence(stream: Stream) -> None:
    for answer in (stream.get(), stream.ask("PATCH"), stream.put(stream_ttl="x")):
        assert set(answer.error) == {"code", "message"}
        assert answer.error["code"].isupper()
        assert answer.error["message"]
        assert answer.headers["content-type"] == "application/json"


def test_a_wrong_content_type_is_named_beside_the_right_one(
    stream: Stream, new_stream: Callable[[], Stream]
) -> None:
    stream.create(b"x", TEXT)
    long = f"application/{'x' * 200}"
    for sent, shown in ((JSON, JSON), (long, long[:79] + "…")):
        message = f"the stream holds text/plain, and this request says {shown}"
        for refused in (
            stream.post(b"{}", sent),
            new_stream().put(b"", sent, stream_forked_from=stream.path),
        ):
            assert refused.status == 409
            assert refused.error == {"code": "CONTENT_TYPE_CONFLICT", "message": message}


def test_a_refused_append_changes_nothing(stream: Stream) -> None:
    stream.create(b"[1]", JSON)
    before = (stream.head().headers["stream-next-offset"], stream.get().headers["etag"])
    refusals = [
        stream.post(b"{", stream_seq="b"),
        stream.post(b"[]", stream_seq="b"),
        stream.post(b"x", TEXT, stream_seq="b"),
        stream.produce(b"2", "p", 0, 3, stream_seq="b"),
        stream.post(b"", stream_seq="b"),
    ]
    assert all(answer.status in (400, 409) for answer in refusals)
    assert (stream.head().headers["stream-next-offset"], stream.get().headers["etag"]) == before
    assert stream.post(b"2", stream_seq="a").status == 204
