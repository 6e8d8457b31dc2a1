"""When a server says that it is not ready."""

from types import SimpleNamespace
from typing import Any

from perennial.http.operations import Readiness


def readiness(read_only: str | None = None) -> Readiness:
    service: Any = SimpleNamespace(committer=SimpleNamespace(read_only=read_only))
    return Readiness(service)


def test_ready_when_nothing_stands_against_it() -> None:
    assert readiness().reasons() == []


def test_not_ready_while_stopping() -> None:
    stopping = readiness()
    stopping.draining = True
    assert stopping.reasons() == ["stopping"]


def test_not_ready_while_the_disk_takes_nothing() -> None:
    assert readiness("the disk is full").reasons() == ["the disk is full"]
