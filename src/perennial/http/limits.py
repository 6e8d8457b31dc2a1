"""What one connection may ask of the server: sizes and patience."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes are in bytes, times in seconds. Times are kept to the tick of the server, about half a second."""

    # How many peers may be connected; more are told to come back later.
    connections: int = 20_000

    # The head of a request. Body sizes are the application's matter: `Handler.body_limit`.
    target_bytes: int = 8 * KIB
    header_bytes: int = 32 * KIB
    header_count: int = 100

    # Requests sent ahead of their turn: raw bytes that may wait before reading stops.
    pipeline_bytes: int = 256 * KIB

    header_seconds: float = 15.0  # from the first byte of a request to the end of its headers
    body_seconds: float = 30.0  # without a byte of the body
    idle_seconds: float = 75.0  # between requests
    stalled_seconds: float = 60.0  # with bytes to write and a peer that takes none
    # A peer that ended its side may still read (`nc -N`) or be gone (a closed browser tab): both look the
    # same. An answer that is nearly ready still goes out; a waiting read is given up after this time.
    half_closed_seconds: float = 2.0

    # After an early refusal the rest of the request is read and thrown away for a while: closing at once
    # would reset the connection, and the peer would see the reset instead of the answer.
    linger_seconds: float = 5.0
    linger_bytes: int = 64 * MIB
