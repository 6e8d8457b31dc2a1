"""Buckets (extensions, 1): identifiers, life and death of a bucket, and streams inside."""

import string

import msgspec
import pytest

from tests.extensions.api import BYTES, JSON, TEXT, ZERO, Api, Bucket, token
from tests.harness.wire import Wire

# 1.1 Identifiers


@pytest.mark.parametrize(
    "name", ["abcd", "a" * 64, "0123", "a-b_c", "----", "____", string.ascii_lowercase + string.digits + "_-"]
)
def test_bucket_ids_of_the_pattern_are_taken(api: Api, name: str) -> None:
    """1.1: "bucket_id: MUST match ^[a-z0-9_-]{4,64}$" """
    bucket = Bucket(api, name)
    assert bucket.create_itself().status == 201
    assert bucket.describe() == {"bucket_id": name, "streams": 0} | _created(bucket)
    assert bucket.delete_itself().status == 204


BAD_BUCKETS = [
    "a",
    "abc",
    "a" * 65,
    "ABCD",
    "agentS",
    "agents.eu",
    "agents~",
    "agents%20",
    "agents%0A",
    "agents%00",
    "%2e%2e%2e%2e",
    "....",
    "agents%2Fmore",
    "%C3%A4gents",
    "agents%FF",
    "%D9%A1%D9%A2%D9%A3%D9%A4",  # digits, but not of this alphabet
    "agents%",
    "__ds",
    "",
]


@pytest.mark.parametrize("name", BAD_BUCKETS)
def test_other_bucket_ids_are_refused_by_every_method(api: Api, name: str) -> None:
    """1.1, 1.2, 1.3, 1.5: "400 Bad Request: bucket_id is invalid." `__ds` is reserved, too."""
    for method in ("PUT", "GET", "DELETE"):
        assert api.ask(method, f"/ds/{name}").status == 400, method


@pytest.mark.parametrize("name", ["abc", "ABCD", "__ds", "a" * 65])
def test_other_bucket_ids_are_refused_below_the_bucket_too(api: Api, name: str) -> None:
    """1.1, 1.4: "400 Bad Request: bucket_id or query parameters are invalid." """
    for below in ("streams", "stream", "stream/bootstrap", "stream/snapshot", f"stream/snapshot/{ZERO}"):
        assert api.ask("GET", f"/ds/{name}/{below}").status == 400
    assert api.ask("GET", f"/v1/feed/{name}").status == 400


GOOD_STREAMS = [
    "a",
    "user-1",
    "with space",
    "a.b",
    ".hidden",
    "trailing.",
    "a:b;c=d,e+f&g",
    "100%",
    "?#[]@!$'()*",
    "Grüße",
    "日本語",
    "🌊",
    "snapshot",
    "bootstrap",
    "Streams",
    "line\nbreak",
    "back\\slash",
    "%2F",  # three characters, none of them a slash
]


@pytest.mark.parametrize("stream", GOOD_STREAMS)
def test_a_stream_id_is_any_utf8_string(bucket: Bucket, stream: str) -> None:
    """1.1: "stream_id: Any UTF-8 string." """
    bucket.create(stream, b"one")
    bucket.append(stream, b"two")
    assert bucket.get(stream).body == b"onetwo"
    assert [listed["stream_id"] for listed in bucket.list()["streams"]] == [stream]
    bucket.publish(stream, token(3))
    assert bucket.bootstrap(stream).messages == [b"two"]
    assert [row["stream"] for row in bucket.feed().rows] == [stream]
    assert bucket.delete(stream).status == 204


BAD_STREAMS = [
    "%2F",
    "a%2Fb",
    "a%2fb",
    "%2Fa",
    "a%2F",
    "%00",
    "a%00b",
    "..",
    "%2e%2e",
    "a..b",
    "..a",
    "a..",
    "...",
    ".",
    "",
    "%FF",
    "%C3",
    "%ED%A0%80",  # half a surrogate pair
    "a%",
    "a%G0",
    "a/b",
    "a/b/c",
    "a/",
    "a/snapshot/x/y",
    "a/bootstrap/x",
    "a/streams",
]


@pytest.mark.parametrize("stream", BAD_STREAMS)
def test_slash_nul_and_dot_dot_are_refused_in_any_disguise(bucket: Bucket, stream: str) -> None:
    """1.1: "MUST NOT contain /, \\0, or .." """
    for method in ("PUT", "POST", "GET", "HEAD", "DELETE"):
        body = b"x" if method == "POST" else b""
        answer = bucket.api.ask(method, f"{bucket.path()}/{stream}", {"Content-Type": TEXT}, body)
        assert answer.status == 400, (method, answer)
    assert bucket.describe()["streams"] == 0


def test_bucket_and_stream_id_together_have_at_most_122_bytes(api: Api, bucket: Bucket) -> None:
    """1.1: "the combined {bucket_id}/{stream_id} key MUST also not exceed 122 bytes." """
    room = 122 - len(bucket.id) - 1
    bucket.create("s" * room)
    assert bucket.try_create("s" * (room + 1)).status == 400
    assert bucket.get("s" * (room + 1)).status == 400
    # Bytes count, not characters.
    wide = "ü" * (room // 2)
    bucket.create(wide)
    assert bucket.try_create(wide + "ü").status == 400


def test_a_stream_id_has_at_most_122_bytes(bucket: Bucket) -> None:
    """1.1: "stream_id: … MUST NOT exceed 122 bytes." """
    for length in (122, 123, 1000):
        assert bucket.try_create("s" * length).status == 400


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
@pytest.mark.parametrize("spelling", ["streams", "%73treams"])
def test_the_stream_id_streams_is_reserved_for_the_listing(
    bucket: Bucket, method: str, spelling: str
) -> None:
    """1.1: "the literal local stream ID streams is reserved for the bucket listing endpoint." """
    path = f"{bucket.path()}/{spelling}"
    assert bucket.api.ask(method, path, {"Content-Type": TEXT}, b"x").status == 400
    assert bucket.list() == {
        "bucket_id": bucket.id,
        "prefix": "",
        "stream_count": 0,
        "streams": [],
        "next_cursor": None,
        "has_more": False,
    }


def test_below_streams_there_is_nothing(bucket: Bucket) -> None:
    """1.1: "reserved": neither a snapshot nor a bootstrap of the listing."""
    for below in ("bootstrap", "snapshot", f"snapshot/{ZERO}"):
        assert bucket.api.ask("GET", bucket.path("streams", below)).status == 400


# 1.2 Create, 1.3 describe, 1.5 delete


def test_a_bucket_is_created_once(api: Api, bucket: Bucket) -> None:
    """1.2: "201 Created", "409 Conflict: Bucket already exists." """
    assert bucket.create_itself().status == 409
    assert bucket.describe()["bucket_id"] == bucket.id


@pytest.mark.parametrize("method", ["PUT", "POST", "GET", "HEAD", "DELETE"])
def test_nothing_creates_a_bucket_on_the_way(api: Api, method: str) -> None:
    """1.2: "Buckets MUST be created explicitly. PUT /ds/{bucket_id}/{stream_id} MUST NOT implicitly create a
    bucket." 1.6: "When the bucket does not exist, the server MUST return 404 Not Found." """
    missing = Bucket(api, "never-made")
    body = b"x" if method in ("PUT", "POST") else b""
    assert api.ask(method, missing.path("stream"), {"Content-Type": TEXT}, body).status == 404
    assert api.ask("GET", missing.path()).status == 404


@pytest.mark.parametrize(
    "query", ["", "?offset=-1", "?offset=now&live=sse", f"?offset={ZERO}&live=long-poll"]
)
def test_every_read_of_a_missing_bucket_is_404(api: Api, query: str) -> None:
    """1.6: "When the bucket does not exist, the server MUST return 404 Not Found." """
    assert api.ask("GET", f"/ds/never-made/stream{query}").status == 404


@pytest.mark.parametrize("below", ["streams", "s/bootstrap", "s/snapshot", f"s/snapshot/{ZERO}"])
def test_what_lies_below_a_missing_bucket_is_404(api: Api, below: str) -> None:
    """1.4, 1.6: "404 Not Found: Bucket does not exist." """
    assert api.ask("GET", f"/ds/never-made/{below}").status == 404
    if "snapshot/" in below:
        assert api.ask("PUT", f"/ds/never-made/{below}", {}, b"x").status == 404
        assert api.ask("DELETE", f"/ds/never-made/{below}").status == 404
    assert api.ask("GET", "/v1/feed/never-made").status == 404
    assert api.ask("HEAD", "/v1/feed/never-made").status == 404


def test_forking_into_or_out_of_a_missing_bucket_is_404(api: Api, bucket: Bucket) -> None:
    """1.6: "When the bucket does not exist, the server MUST return 404 Not Found." Forks included."""
    bucket.create("source", b"data")
    missing = Bucket(api, "never-made")
    assert missing.try_create("fork", stream_forked_from=bucket.path("source")).status == 404
    assert bucket.try_create("fork", stream_forked_from=missing.path("source")).status == 404
    assert bucket.describe()["streams"] == 1


def test_metadata_counts_the_streams_of_the_moment(api: Api, bucket: Bucket) -> None:
    """1.3: "Returns a JSON object with at least bucket_id (string) and streams (integer, count of streams in
    the bucket)." """
    answer = api.ask("GET", bucket.path())
    assert answer.headers["content-type"] == "application/json"
    assert msgspec.json.decode(answer.body)["streams"] == 0
    for number in range(5):
        bucket.create(f"s{number}")
    bucket.create("again")
    assert bucket.try_create("again").status == 200
    assert bucket.describe()["streams"] == 6
    bucket.append("s0", b"data")
    bucket.close("s1")
    assert bucket.describe()["streams"] == 6
    for number in range(5):
        bucket.delete(f"s{number}")
    assert bucket.describe()["streams"] == 1
    bucket.create("s0")
    assert bucket.describe()["streams"] == 2


def test_only_an_empty_bucket_is_deleted(bucket: Bucket) -> None:
    """1.5: "A bucket MUST be empty (zero streams) before deletion." 204, 404, 409."""
    bucket.create("s", b"data")
    assert bucket.delete_itself().status == 409
    assert bucket.get("s").body == b"data"
    bucket.delete("s")
    assert bucket.delete_itself().status == 204
    assert bucket.delete_itself().status == 404
    assert bucket.api.ask("GET", bucket.path()).status == 404
    assert bucket.try_create("s").status == 404
    assert bucket.create_itself().status == 201
    assert bucket.describe()["streams"] == 0


def test_a_bucket_with_deleted_streams_that_forks_need_is_not_empty(api: Api, bucket: Bucket) -> None:
    """1.5: "A bucket MUST be empty". Soft-deleted streams are not counted, but they are not gone either."""
    elsewhere = api.new_bucket()
    bucket.create("source", b"data")
    elsewhere.create("fork", content_type=None, stream_forked_from=bucket.path("source"))
    bucket.delete("source")
    assert bucket.describe()["streams"] == 0
    assert bucket.list()["streams"] == []
    assert bucket.delete_itself().status == 409
    assert elsewhere.get("fork").body == b"data"
    elsewhere.delete("fork")
    assert bucket.delete_itself().status == 204


@pytest.mark.parametrize("name", ["default", "proxy"])
def test_built_in_buckets_can_neither_be_created_nor_deleted(api: Api, name: str) -> None:
    """1.2, 1.5: "409 Conflict". They are there from the start, and stay."""
    assert Bucket(api, name).create_itself().status == 409
    assert Bucket(api, name).delete_itself().status == 409


def test_the_default_bucket_is_the_base_surface(api: Api) -> None:
    """1: "Every stream belongs to a bucket." """
    default = Bucket(api, "default")
    assert api.ask("PUT", "/v1/stream/on-both", {"Content-Type": TEXT}, b"base").status == 201
    default.append("on-both", b"+ds")
    assert api.ask("GET", "/v1/stream/on-both").body == b"base+ds"
    assert api.ask("PUT", "/v1/stream/deep/er", {"Content-Type": TEXT}).status == 201
    assert {"on-both", "deep/er"} <= {listed["stream_id"] for listed in default.list()["streams"]}
    assert api.ask("DELETE", "/ds/default/on-both").status == 204
    assert api.ask("GET", "/v1/stream/on-both").status == 404


@pytest.mark.parametrize("below", ["snapshot", "bootstrap", f"snapshot/{ZERO}"])
def test_on_the_base_surface_sub_resources_are_ordinary_names(api: Api, below: str) -> None:
    """1, 2, 3: snapshots and bootstrap are addressed below `/ds/` only, where ids hold no slash."""
    assert api.ask("PUT", f"/v1/stream/plain/{below}", {"Content-Type": TEXT}, b"just data").status == 201
    assert api.ask("GET", f"/v1/stream/plain/{below}").body == b"just data"


def test_methods_that_make_no_sense_are_405_with_what_does(bucket: Bucket) -> None:
    bucket.create("s")
    refused = [
        ("POST", bucket.path()),
        ("PATCH", bucket.path("streams")),
        ("PUT", bucket.path("s", "bootstrap")),
        ("POST", bucket.path("s", "bootstrap")),
        ("PUT", bucket.path("s", "snapshot")),
        ("DELETE", bucket.path("s", "snapshot")),
        ("POST", bucket.path("s", f"snapshot/{ZERO}")),
        ("PUT", bucket.feed_path()),
        ("POST", bucket.feed_path()),
        ("DELETE", bucket.feed_path()),
    ]
    for method, path in refused:
        answer = bucket.api.ask(method, path, {}, b"x" if method in ("PUT", "POST") else b"")
        assert (answer.status, "GET" in answer.headers.get("allow", "")) == (405, True), (method, path)


# 1.6 Streams in buckets


def test_every_base_operation_applies_in_a_bucket(bucket: Bucket) -> None:
    """1.6: "All stream operations defined in the base protocol apply under
    {base_url}/ds/{bucket_id}/{stream_id}." """
    created = bucket.create("s", b'[1,{"a":2}]', JSON)
    assert created.headers["location"].endswith(bucket.path("s"))
    assert bucket.append("s", b"3", JSON) == token(9)
    assert bucket.get("s").body == b'[1,{"a":2},3]'
    assert bucket.get("s", offset=token(8)).body == b"[3]"
    assert bucket.get("s", offset="now").body == b"[]"
    assert bucket.head("s").headers["stream-next-offset"] == token(9)
    producer = {"producer_id": "p", "producer_epoch": "0", "producer_seq": "0"}
    assert bucket.try_append("s", b"4", JSON, **producer).status == 200
    assert bucket.try_append("s", b"4", JSON, **producer).status == 204
    assert bucket.get("s", offset=token(9), live="long-poll").body == b"[4]"
    bucket.fork("s", "f", stream_fork_offset=token(8))
    assert bucket.get("f").body == b'[1,{"a":2}]'
    assert bucket.close("s").status == 204
    assert bucket.try_append("s", b"5", JSON).status == 409
    with bucket.api.open("GET", bucket.path("s", query={"offset": "-1", "live": "sse"})) as wire:
        status, headers = wire.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        events = list(wire.events())
    assert events[0].data == '[1,{"a":2},3,4]'
    assert events[-1].control["streamClosed"] is True
    assert bucket.delete("s").status == 204


def test_streams_of_the_same_name_in_two_buckets_are_strangers(api: Api, bucket: Bucket) -> None:
    """1: "Every stream belongs to a bucket." """
    other = api.new_bucket()
    bucket.create("s", b"here")
    assert other.get("s").status == 404
    other.create("s", b"there")
    bucket.append("s", b"!")
    assert (bucket.get("s").body, other.get("s").body) == (b"here!", b"there")
    bucket.delete("s")
    assert other.get("s").body == b"there"


def test_a_fork_may_live_in_another_bucket(api: Api, bucket: Bucket) -> None:
    """1.6: "All stream operations … apply": forks too, in the same bucket or another."""
    other = api.new_bucket()
    bucket.create("s", b"shared")
    other.create("f", b"+own", content_type=None, stream_forked_from=bucket.path("s"))
    assert other.get("f").body == b"shared+own"
    assert api.ask("PUT", "/v1/stream/forked-out", {"Stream-Forked-From": other.path("f")}).status == 201
    assert api.ask("GET", "/v1/stream/forked-out").body == b"shared+own"
    assert [row["payload"] for row in other.feed().rows] == [b"+own"]


# 4 Ordinary SSE


def test_binary_streams_are_base64_on_sse_and_say_so(bucket: Bucket) -> None:
    """4: "For binary streams, ordinary event: data payloads are raw base64 text and the response MUST include
    stream-sse-data-encoding: base64." "Extension endpoints MUST NOT redefine the payload shape of ordinary
    binary SSE event: data frames" """
    bucket.create("s", b"\x00\xff\n", BYTES)
    bucket.append("s", b"more", BYTES)
    bucket.publish("s", token(3))
    bucket.close("s")
    with bucket.api.open("GET", bucket.path("s", query={"offset": token(3), "live": "sse"})) as wire:
        _, headers = wire.head()
        events = list(wire.events())
    assert headers["stream-sse-data-encoding"] == "base64"
    assert events[0].data == "bW9yZQ=="
    with bucket.api.open("GET", bucket.path("s", query={"offset": ZERO, "live": "sse"})) as wire:
        assert wire.head()[0] == 410


# The proxy's bucket


def test_the_proxy_bucket_is_invisible_without_a_token(api: Api) -> None:
    """Proxied responses are never open to all, not even on a server that asks nobody for a token."""
    for path in ("/ds/proxy", "/ds/proxy/streams", "/ds/proxy/some-id", "/v1/feed/proxy"):
        for method in ("GET", "HEAD"):
            assert api.ask(method, path).status == 404, (method, path)
    assert api.ask("PUT", "/ds/proxy/some-id", {"Content-Type": TEXT}).status == 404
    fork = {"Stream-Forked-From": "/ds/proxy/some-id"}
    assert api.ask("PUT", "/v1/stream/forked-from-proxy", fork).status == 404


def test_a_connection_survives_all_refusals(bucket: Bucket) -> None:
    """Refusals are answers like any other: the next request on the connection is served."""
    with Wire(bucket.api.port) as wire:
        assert wire.request("GET", "/ds/ABCD").status == 400
        assert wire.request("PUT", bucket.path("a%2Fb"), {"Content-Type": TEXT}, b"x").status in (201, 400)
        assert wire.request("PUT", f"{bucket.path()}/a%2Fb", {"Content-Type": TEXT}, b"x").status == 400
        assert wire.request("PUT", bucket.snapshot_path("none", ZERO), {}, b"x").status == 404
        assert wire.request("GET", bucket.path()).status == 200


def _created(bucket: Bucket) -> dict[str, int]:
    return {"created_at_ms": bucket.describe()["created_at_ms"]}
