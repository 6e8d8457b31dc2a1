"""`multipart/mixed` as bootstrap writes it (extensions, 3.2; RFC 2046, 5.1): a part per message."""


def open_part(boundary: bytes, content_type: str, first: bool = False) -> bytes:
    """What stands before a part's bytes; it also ends the part before."""
    lead = b"" if first else b"\r\n"
    return lead + b"--" + boundary + b"\r\nContent-Type: " + content_type.encode("latin-1") + b"\r\n\r\n"


def close_parts(boundary: bytes) -> bytes:
    return b"\r\n--" + boundary + b"--\r\n"
