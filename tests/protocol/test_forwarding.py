"""Which headers pass (proxy protocol, 6)."""

from perennial.protocol.forwarding import upstream_request_headers, upstream_response_headers


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
