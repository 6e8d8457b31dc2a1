"""Which headers pass (proxy protocol, 6)."""

from hypothesis import given
from hypothesis import strategies as st

from perennial.protocol.forwarding import upstream_request_headers, upstream_response_headers
from perennial.protocol.frames import Start


def test_credentials_are_exchanged() -> None:
    """6.1: Authorization is NOT forwarded; Upstream-Authorization is sent as Authorization."""
    headers = {b"authorization": "for us", b"upstream-authorization": "for them", b"x": "1"}
    assert upstream_request_headers(headers) == [("x", "1"), ("authorization", "for them")]
    assert upstream_request_headers({b"authorization": "for us"}) == []


def test_the_connection_header_names_others_to_strip() -> None:
    headers = {b"connection": "close, X-Hop , te", b"x-hop": "1", b"te": "x", b"x-end": "2"}
    assert upstream_request_headers(headers) == [("x-end", "2")]


def test_only_ours_is_the_stream_id_of_a_connect() -> None:
    """6.1: for connect operations, the proxy adds a Stream-Id header with the derived stream ID."""
    assert upstream_request_headers({b"stream-id": "forged"}, "true") == [("stream-id", "true")]
    assert upstream_request_headers({b"stream-id": "theirs"}) == [("stream-id", "theirs")]


def test_lengths_and_expectations_are_ours_to_make() -> None:
    assert upstream_request_headers({b"content-length": "5", b"expect": "100-continue", b"host": "us"}) == []


def test_response_headers_are_lowered_joined_and_filtered() -> None:
    """5.2: header names MUST be lowercased."""
    pairs = [
        (b"X-A", b"1"),
        (b"x-a", b"2"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Connection", b"X-B"),
        (b"X-B", b"3"),
    ]
    assert upstream_response_headers(pairs) == {"x-a": "1, 2"}


# What an HTTP library may hand over as a value: no line breaks, no blanks around it.
cookies = st.text(st.sampled_from("a=1;, \té"), max_size=12).map(lambda text: text.strip(" \t"))


@given(st.lists(cookies, max_size=4))
def test_cookies_can_be_told_apart(values: list[str]) -> None:
    """Only blanks may change, where a cookie has a tab behind a comma."""
    headers = upstream_response_headers([(b"Set-Cookie", value.encode("latin-1")) for value in values])
    assert Start(200, headers).set_cookies == [value.replace(",\t", ", ") for value in values]


def test_cookies_are_one_header_that_http_allows() -> None:
    """Readers make HTTP headers of what a Start frame has."""
    dated = b"a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT"
    headers = upstream_response_headers([(b"Set-Cookie", dated), (b"SET-COOKIE", b"b=2; Secure")])
    assert headers == {"set-cookie": f"{dated.decode()},\tb=2; Secure"}
    assert Start(200, headers).set_cookies == [dated.decode(), "b=2; Secure"]
    assert Start(200, {}).set_cookies == []
