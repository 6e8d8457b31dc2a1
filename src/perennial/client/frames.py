"""The frames of a proxy stream, for readers outside the server."""

from perennial.protocol.frames import (
    TERMINAL,
    Failure,
    Frame,
    FrameError,
    FrameParser,
    FrameType,
    Start,
    parse_start,
)

__all__ = ["TERMINAL", "Failure", "Frame", "FrameError", "FrameParser", "FrameType", "Start", "parse_start"]
