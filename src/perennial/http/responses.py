"""The bytes of an answer: status lines, response heads, chunk framing."""

from email.utils import formatdate
from http import HTTPStatus

from perennial.http.exchange import COMMON_HEADERS, Headers

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_TOO_MANY = (
    b'{"error":{"code":"TOO_MANY_CONNECTIONS","message":"as many connections as this server takes are open"}}'
)
TURNED_AWAY = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\ncontent-type: application/json\r\n"
    b"cache-control: no-store\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
) % (len(_TOO_MANY), _TOO_MANY)
CLOSE = b"connection: close\r\n"
KEEP_ALIVE = b"connection: keep-alive\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
LAST_CHUNK = b"0\r\n\r\n"

# Answers up to this size are joined into one buffer; beyond it, copying costs more than a second buffer does.
JOIN_BYTES = 64 * 1024

_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}


class Heads(dict[int, bytes]):
    """The beginning of an answer by its status: status line, common headers and the date of this second."""

    def __init__(self, unix_time: float, common: Headers = COMMON_HEADERS) -> None:
        self._common = b"".join(b"%b: %b\r\n" % header for header in common)
        self._date = b""
        self.set_time(unix_time)

    def set_time(self, unix_time: float) -> None:
        date = formatdate(unix_time, usegmt=True).encode()
        if date != self._date:
            self._date = date
            self.clear()

    def __missing__(self, status: int) -> bytes:
        line = b"HTTP/1.1 %d %b\r\n" % (status, _REASONS.get(status, b"Unknown"))
        self[status] = start = b"%b%bdate: %b\r\n" % (line, self._common, self._date)
        return start


def encode_headers(headers: Headers) -> bytes:
    block = b""
    for name, value in headers:
        block += b"%b: %b\r\n" % (name, value)
    # A line break inside a value would let whoever chose the value write headers, or a second answer.
    if block.count(b"\n") != len(headers) or block.count(b"\r") != len(headers):
        raise ValueError("line break in a response header")
    return block


def frame_chunk(data: bytes) -> bytes:
    """One chunk of a chunked body. Empty data gives nothing: an empty chunk would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
