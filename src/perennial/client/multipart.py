"""`multipart/mixed` as it comes in: complete parts out (RFC 2046, 5.1.1). No I/O."""

from typing import NamedTuple

from perennial.client.errors import PerennialClientError


class Part(NamedTuple):
    content_type: str
    body: bytes


class PartReader:
    """Feed it the body of a bootstrap, piece by piece. `ended` tells whether the last delimiter has come."""

    def __init__(self, content_type: str) -> None:
        media_type, _, parameters = content_type.partition(";")
        name, _, boundary = parameters.strip().partition("=")
        if media_type.strip().lower() != "multipart/mixed" or name.lower() != "boundary" or not boundary:
            raise PerennialClientError(f"expected multipart/mixed with a boundary, not {content_type!r}")
        self._delimiter = b"\r\n--" + boundary.strip('"').encode("latin-1")
        # The first delimiter stands at the very beginning; with this it looks like all the others.
        self._buffer = bytearray(b"\r\n")
        self._searched = 0
        self._begun = False
        self.ended = False

    def feed(self, data: bytes) -> list[Part]:
        """The parts that are complete now."""
        buffer, delimiter = self._buffer, self._delimiter
        buffer += data
        parts = []
        start = 0
        # Two bytes behind a delimiter tell whether it was the last.
        while (at := buffer.find(delimiter, max(start, self._searched))) >= 0:
            after = at + len(delimiter)
            if len(buffer) < after + 2:
                break
            if self._begun:
                parts.append(_parse(bytes(buffer[start:at])))
            self._begun = True
            start = self._searched = after
            if buffer[after : after + 2] == b"--":
                self.ended = True
                break
        del buffer[:start]
        self._searched = 0 if at >= 0 else max(0, len(buffer) - len(delimiter))
        return parts


def _parse(text: bytes) -> Part:
    head, separator, body = text.partition(b"\r\n\r\n")
    if not separator:
        raise PerennialClientError("a part of a multipart answer has no headers")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-type":
            return Part(value.strip().decode("latin-1"), body)
    return Part("text/plain", body)  # what RFC 2046 says of a part without one
