"""Requests gone wrong at random: the server answers or hangs up, and never fails.

Valid requests are the starting point, because noise alone never gets past the first line. The peer ends its
side after sending, so a request that lacks its end can be given up at once.
"""

import os
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.server import ServerProcess
from tests.harness.wire import Wire, encode_request
from tests.robustness.victims import JSON, ROOT, TEXT, Streams

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "300"))

# Not implemented (a method, a transfer coding) and not this version of HTTP are honest answers.
FAILURES = frozenset(range(500, 600)) - {501, 505}

PRODUCER = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
FORK = {
    "Stream-Forked-From": f"{ROOT}fuzz",
    "Stream-Fork-Offset": "0000000000000000",
    "Stream-Fork-Sub-Offset": "1",
}
VALID = [
    encode_request("PUT", f"{ROOT}fuzz", TEXT | {"Stream-TTL": "60"}, b"hello"),
    encode_request("PUT", f"{ROOT}fuzz-at", JSON | {"Stream-Expires-At": "2099-01-15T12:00:00.5Z"}, b"[1]"),
    encode_request("PUT", f"{ROOT}fuzz-fork", FORK | {"Stream-Closed": "true"}),
    encode_request("POST", f"{ROOT}fuzz", TEXT | {"Stream-Seq": "a"}, b"line\r\nline\n"),
    encode_request("POST", f"{ROOT}fuzz", TEXT | PRODUCER, b"produced"),
    encode_request(
        "POST", f"{ROOT}fuzz-at", JSON | {"Expect": "100-continue"}, b'[{"a":[1,null,"\\u00e9"]}]'
    ),
    encode_request("POST", f"{ROOT}fuzz", {"Stream-Closed": "true"}),
    encode_request("GET", f"{ROOT}fuzz?offset=0000000000000000", {"If-None-Match": '"a", W/"b"'}),
    encode_request("GET", f"{ROOT}fuzz?offset=-1&live=long-poll&cursor=12"),
    encode_request("GET", f"{ROOT}fuzz-at?offset=now&live=sse"),
    encode_request("HEAD", f"{ROOT}fuzz"),
    encode_request("OPTIONS", f"{ROOT}fuzz", {"Origin": "http://a", "Access-Control-Request-Method": "PUT"}),
    encode_request("DELETE", f"{ROOT}fuzz"),
    b"POST /v1/stream/fuzz HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;x=y\r\n...\r\n0\r\nTrailer: x\r\n\r\n",
    b"GET http://a/v1/stream/fuzz HTTP/1.0\r\nConnection: keep-alive\r\nUpgrade: h2c\r\n\r\n",
]

# What tends to break parsers of all kinds.
NASTY = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b",", b";", b"%", b"%00", b"%2e%2e", b"/", b"//", b"?",
    b"#", b"&offset=-1", b"[", b"{", b'"', b"\\u", b"\\ud800", b"\xff", b"\xed\xa0\x80", "🌊".encode(), b"-1",
    b"0", b"9" * 30, b"0" * 5000, b"1e9", b"NaN", b"true", b"now", b"chunked", b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Host: b\r\n", b"0\r\n\r\n", b"\r\n\r\n", b"x" * 9000, b"HTTP/1.1",
]  # fmt: skip


@st.composite
def hostile_bytes(draw: st.DrawFn) -> bytes:
    data = b"".join(draw(st.lists(st.sampled_from(VALID), min_size=1, max_size=3)))
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.sampled_from([0, 0, 1, 2, 8, 40])))
        replacement = draw(
            st.one_of(
                st.sampled_from(NASTY),
                st.binary(max_size=8),
                st.just(b""),
                st.just(data[end : end + 20] * 2),  # said twice
            )
        )
        data = data[:start] + replacement + data[end:]
    return data


def statuses(received: bytes) -> list[int]:
    """Of all the answers: none of our payloads looks like a status line."""
    return [int(found) for found in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", received)]


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="FUZZ_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=hostile_bytes())
def test_hostile_bytes_are_answered_or_refused(streams: Streams, victim: ServerProcess, data: bytes) -> None:
    with Wire(streams.port) as wire:
        try:
            wire.send(data)
            wire.end()
            received = wire.rest()
        except ConnectionError:
            received = b""  # it hung up while we were still talking
    assert FAILURES.isdisjoint(statuses(received)), received
    assert "Traceback" not in victim.output, victim.output


@pytest.mark.parametrize("raw", VALID, ids=range(len(VALID)))
def test_a_valid_request_may_come_byte_by_byte(streams: Streams, raw: bytes) -> None:
    """The starting points are what they should be, however the network cuts them."""
    with Wire(streams.port) as wire:
        for position in range(len(raw)):
            wire.send(raw[position : position + 1])
        wire.end()
        found = statuses(wire.rest())
    assert found, raw
    assert FAILURES.isdisjoint(found), raw
