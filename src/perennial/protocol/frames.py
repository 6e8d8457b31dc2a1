"""The frames of a proxy stream: nine bytes of header, then a payload (proxy protocol, 5).

type (1 byte)   response id (4 bytes, big-endian)   payload length (4 bytes, big-endian)   payload
"""

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

import msgspec

HEADER_BYTES: Final = 9
LARGEST_RESPONSE_ID: Final = 2**32 - 1
# No frame of ours comes near this: a longer one means that these bytes are not frames.
LARGEST_PAYLOAD: Final = 64 * 1024 * 1024
# Cookies have commas of their own, as in `Expires=Wed, 21 Oct …`, so where one ends must show in another way:
# by the tab, which HTTP allows behind a comma (RFC 9110, 5.6.1). Readers make HTTP headers of what is in a
# Start frame, and fail on a line feed; of a name that comes twice in JSON they see the last.
COOKIE_SEPARATOR: Final = ",\t"

_HEADER = struct.Struct(">BII")


class FrameType(IntEnum):
    START = ord("S")
    DATA = ord("D")
    COMPLETE = ord("C")
    ABORT = ord("A")
    ERROR = ord("E")


TERMINAL: Final = frozenset({FrameType.COMPLETE, FrameType.ABORT, FrameType.ERROR})
_TYPES: Final = {kind.value: kind for kind in FrameType}


class FrameError(ValueError):
    """These bytes are not the frames of a proxy stream; `offset` is where that shows."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"{reason} at offset {offset}")
        self.reason = reason
        self.offset = offset


class Frame(msgspec.Struct, frozen=True):
    """One complete frame; `end` is the offset just behind it."""

    type: FrameType
    response_id: int
    payload: bytes = b""
    end: int = 0


class Start(msgspec.Struct, frozen=True):
    """The payload of a Start frame. Names are in lower case; repeated headers are joined with a comma and a
    space, cookies with `COOKIE_SEPARATOR`."""

    status: int
    headers: dict[str, str]

    @property
    def set_cookies(self) -> list[str]:
        """The values of the upstream's Set-Cookie headers, one by one."""
        joined = self.headers.get("set-cookie")
        return [] if joined is None else joined.split(COOKIE_SEPARATOR)


class Failure(msgspec.Struct, frozen=True):
    """The payload of an Error frame."""

    code: str
    message: str


_start = msgspec.json.Decoder(Start).decode
_failure = msgspec.json.Decoder(Failure).decode


# Encoding


def encode_frame(kind: FrameType, response_id: int, payload: bytes = b"") -> bytes:
    return _HEADER.pack(kind, response_id, len(payload)) + payload


def encode_start(response_id: int, status: int, headers: Mapping[str, str]) -> bytes:
    payload = msgspec.json.encode(Start(status, {name.lower(): value for name, value in headers.items()}))
    return encode_frame(FrameType.START, response_id, payload)


def encode_data(response_id: int, payload: bytes) -> bytes:
    return encode_frame(FrameType.DATA, response_id, payload)


def encode_complete(response_id: int) -> bytes:
    return encode_frame(FrameType.COMPLETE, response_id)


def encode_abort(response_id: int) -> bytes:
    return encode_frame(FrameType.ABORT, response_id)


def encode_error(response_id: int, code: str, message: str) -> bytes:
    return encode_frame(FrameType.ERROR, response_id, msgspec.json.encode(Failure(code, message)))


# Parsing


def parse_start(frame: Frame) -> Start:
    try:
        return _start(frame.payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FrameError(f"malformed Start frame ({error})", _begin(frame)) from error


def parse_failure(frame: Frame) -> Failure:
    try:
        return _failure(frame.payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FrameError(f"malformed Error frame ({error})", _begin(frame)) from error


class FrameParser:
    """Takes the bytes of a proxy stream in pieces of any size and gives its frames.

    After a lost connection the same parser goes on with the byte at `position`, also in the middle of a
    frame. A new parser, in another process perhaps, begins at a `boundary`.
    """

    __slots__ = ("_broken", "_held", "boundary")

    def __init__(self, boundary: int = 0) -> None:
        self.boundary = boundary  # the offset behind the last complete frame
        self._held = bytearray()  # the beginning of the next one
        self._broken: FrameError | None = None

    @property
    def position(self) -> int:
        """The offset of the next byte to feed."""
        return self.boundary + len(self._held)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames these bytes complete. After a `FrameError` the parser is of no more use."""
        if self._broken is not None:
            raise self._broken
        held = self._held
        held += data
        frames: list[Frame] = []
        start = 0
        while len(held) - start >= HEADER_BYTES:
            kind, response_id, length = self._header(start)
            end = start + HEADER_BYTES + length
            if len(held) < end:
                break
            payload = bytes(memoryview(held)[start + HEADER_BYTES : end])
            frames.append(Frame(kind, response_id, payload, self.boundary + end))
            start = end
        else:
            # Too short for a header, but long enough to see that it cannot become one.
            if len(held) > start:
                self._kind(start)
        del held[:start]
        self.boundary += start
        return frames

    def _header(self, start: int) -> tuple[FrameType, int, int]:
        kind = self._kind(start)
        _, response_id, length = _HEADER.unpack_from(self._held, start)
        if response_id == 0:
            self._refuse("response id 0", start)
        if length > LARGEST_PAYLOAD:
            self._refuse(f"a frame of {length} bytes, more than {LARGEST_PAYLOAD}", start)
        if length and kind is FrameType.COMPLETE:
            self._refuse("a payload in a Complete frame", start)
        if length and kind is FrameType.ABORT:
            self._refuse("a payload in an Abort frame", start)
        return kind, response_id, length

    def _kind(self, start: int) -> FrameType:
        byte = self._held[start]
        kind = _TYPES.get(byte)
        if kind is None:
            self._refuse(f"unknown frame type 0x{byte:02x}", start)
        assert kind is not None, "_refuse raises"
        return kind

    def _refuse(self, reason: str, start: int) -> None:
        self._broken = FrameError(reason, self.boundary + start)
        raise self._broken


def _begin(frame: Frame) -> int:
    return frame.end - HEADER_BYTES - len(frame.payload)
