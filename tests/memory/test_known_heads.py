"""Heads that were seen before, and lanes: what anyone can make the server remember has a bound."""

import gc
import tracemalloc
from pathlib import Path

from perennial.http.heads import REMEMBERED_BYTES, REMEMBERED_HEADERS, REMEMBERED_HEADS
from perennial.http.lanes import LONGEST_PATH
from tests.http.served import Served

MB = 1_000_000
ALLOWED = 25 * MB  # `http.heads` says about 24


def costly_head(number: int) -> bytes:
    """As long as is remembered, with the most headers, and a name whose every letter takes four bytes."""
    path = b"/v1/stream/%05d%%F0%%9F%%98%%80" % number
    path += b"x" * (LONGEST_PATH - len(path))
    lines = [b"POST %b HTTP/1.1" % path, b"Host: a", b"Content-Type: a/b", b"Content-Length: 1"]
    lines += [b"X%d:yy" % line for line in range(REMEMBERED_HEADERS - 4)]
    lines.append(b"Y:" + b"y" * (REMEMBERED_BYTES - len(b"\r\n".join(lines)) - 8))
    return b"\r\n".join([*lines, b"", b""])


def test_the_costliest_heads_and_their_lanes_take_no_more_than_they_may(tmp_path: Path) -> None:
    with Served(tmp_path / "data") as served:
        tracemalloc.start()
        try:
            for number in range(REMEMBERED_HEADS):
                served.learn(costly_head(number) + b"x")
            gc.collect()
            size, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        heads = served.state.known_heads
        assert len(heads) == REMEMBERED_HEADS
        assert all(head.lane is not None for head in heads.values())
    assert size < ALLOWED, f"{size / MB:.1f} MB"
