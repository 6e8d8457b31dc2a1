"""A progress bar on standard error, where someone can see it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LARGE_BYTES: Final = 1 << 20


@contextmanager
def watching(total: int | None, wanted: bool | None) -> Iterator[Callable[[int], None]]:
    """Yields a function to be told of each piece. `total` None: not known; `wanted` None: if it is large."""
    if wanted is None:
        wanted = sys.stderr.isatty() and total is not None and total >= LARGE_BYTES
    if not wanted:
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=False) as progress:
        task = progress.add_task("append", total=total)
        yield lambda size: progress.advance(task, size)
