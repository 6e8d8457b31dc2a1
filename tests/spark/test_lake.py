"""The lake: what forks inherited is in it, and full disks and killed runs do it no harm."""

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from perennial.spark.errors import PipelineError
from perennial.spark.jobs import archive, load
from perennial.spark.jobs.archive import ArchiveOptions
from perennial.spark.jobs.load import LoadOptions
from perennial.spark.lake import Lake
from perennial.spark.options import make_target
from tests.harness.small_disk import MIB, SmallDisk, mount
from tests.spark.http_calls import Calls
from tests.spark.test_jobs import fill_at_random

JSON = "application/json"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    place = tmp_path / "disk"
    place.mkdir()
    mount(place, "-t", "tmpfs", "-o", f"size={16 * MIB}", "tmpfs")
    try:
        yield SmallDisk(place)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)


def files_on_disk(root: Path) -> set[str]:
    return {
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.suffix != ".crc"
    }


def check_whole(spark: SparkSession, options: ArchiveOptions) -> None:
    """The log, the directory and the rows say the same, and there is nothing else."""
    lake, bucket = Lake(spark, options.lake), options.target.bucket
    contents = lake.contents(bucket)
    log = {f"_log/{bucket}/{version:020d}.json" for version in range(1, contents.version + 1)}
    assert files_on_disk(Path(options.lake)) == log | set(contents.files) | set(contents.inherited)
    positions = [row.position for row in lake.read(bucket).select("position").collect()]
    assert len(positions) == len(set(positions))
    assert max(positions, default=0) == contents.position


def check_rebuilt(spark: SparkSession, calls: Calls, lake: str) -> None:
    again = calls.sibling(f"{calls.bucket}-again")
    load.run(spark, LoadOptions(make_target(again.url, again.bucket), lake=lake, lake_bucket=calls.bucket))
    assert again.digest() == calls.digest()


def test_a_full_disk_is_said_and_the_next_run_goes_on(
    spark: SparkSession, calls: Calls, disk: SmallDisk
) -> None:
    calls.create("s")
    for seed in range(20):
        # Nothing that a compressor could make small.
        calls.append("s", random.Random(seed).randbytes(128 * 1024))
    target = make_target(calls.url, calls.bucket)
    options = ArchiveOptions(target, str(disk.path / "lake"), round_bytes=MIB // 2)
    disk.fill(leave=MIB * 3 // 2)
    with pytest.raises(
        PipelineError, match=r"no room left at .*lake: .* Make room there and run the job again"
    ):
        archive.run(spark, options)
    reached = Lake(spark, options.lake).contents(calls.bucket).position
    assert 0 < reached < calls.head_position()
    check_whole(spark, options)
    disk.free()
    assert archive.run(spark, options).facts["positions"] == f"{reached + 1} to 20"
    check_whole(spark, options)
    check_rebuilt(spark, calls, options.lake)


class Killed(BaseException):
    """What a process that is killed does: nothing more."""


@pytest.mark.parametrize("deadly_commit", [1, 2], ids=["archiving", "merging"])
def test_what_a_killed_run_left_is_never_read_and_goes_with_the_next(
    spark: SparkSession, calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deadly_commit: int
) -> None:
    options = ArchiveOptions(make_target(calls.url, calls.bucket), str(tmp_path / "lake"), merge_at=2)
    fill_at_random(calls, 1)
    archive.run(spark, options)
    fill_at_random(calls, 2)
    commits = 0
    commit = Lake._commit

    def die(lake: Lake, *change: Any) -> None:
        nonlocal commits
        commits += 1
        if commits == deadly_commit:
            patched.setattr(Lake, "_discard", lambda *_: None)
            raise Killed
        commit(lake, *change)

    with monkeypatch.context() as patched:
        patched.setattr(Lake, "_commit", die)
        with pytest.raises(Killed):
            archive.run(spark, options)
    left = files_on_disk(tmp_path / "lake")
    contents = Lake(spark, options.lake).contents(calls.bucket)
    dead = {path for path in left if path.startswith("bucket=")} - set(contents.files)
    assert dead, "nothing was left behind"
    rows = Lake(spark, options.lake).read(calls.bucket)
    assert rows.count() == rows.where(f"position <= {contents.position}").distinct().count()
    assert archive.run(spark, options).facts["leftovers of broken-off runs removed"] >= 3
    assert not dead & files_on_disk(tmp_path / "lake")
    check_whole(spark, options)
    check_rebuilt(spark, calls, options.lake)


def test_a_lake_alone_rebuilds_forks(spark: SparkSession, calls: Calls, tmp_path: Path) -> None:
    options = ArchiveOptions(make_target(calls.url, calls.bucket), str(tmp_path / "lake"))
    calls.create("bytes")
    for number in range(1, 300):
        calls.append("bytes", bytes([number % 256]) * number)
    calls.create("json", JSON)
    calls.append_json("json", *({"n": n, "x": "日本語"} for n in range(50)))
    middle = 150 * 149 // 2
    calls.fork("bytes", "at its end", 300 * 299 // 2)
    calls.fork("bytes", "in the middle", middle)
    calls.append("in the middle", b"its own")
    calls.fork("in the middle", "a fork's fork", middle + 7)
    calls.fork("json", "of messages", int(calls.head("json")["stream-next-offset"]))
    calls.append_json("of messages", "more")
    calls.close("of messages")
    other = calls.sibling(f"{calls.bucket}-other")
    other.create("source")
    other.append("source", b"not of this bucket")
    calls.fork("source", "from elsewhere", 18, of=other)
    other.delete("source")
    # A name that was a stream first, and one that was a fork first.
    calls.create("again")
    calls.append("again", b"an earlier life")
    calls.delete("again")
    calls.fork("bytes", "again", middle)
    calls.fork("bytes", "anew", middle)
    archive.run(spark, options)
    calls.delete("anew")
    calls.create("anew")
    calls.append("anew", b"nothing inherited any more")
    calls.append("again", b"later")
    calls.fork("again", "late", middle + 5)
    done = archive.run(spark, options)
    assert done.facts["forks whose inherited bytes were added"] == 1, "the others were there"
    assert "forks whose inherited bytes were added" not in archive.run(spark, options).facts
    check_whole(spark, options)
    check_rebuilt(spark, calls, options.lake)


def test_what_a_snapshot_replaced_before_archiving_is_told(
    spark: SparkSession, calls: Calls, tmp_path: Path
) -> None:
    options = ArchiveOptions(make_target(calls.url, calls.bucket), str(tmp_path / "lake"))
    for name in ("archived first", "trimmed first"):
        calls.create(name, JSON)
        calls.append_json(name, *range(20))
        if name == "archived first":
            archive.run(spark, options)
        tail = int(calls.head(name)["stream-next-offset"])
        calls.publish(name, tail, b"[1]", JSON)
        calls.append_json(name, "after")
    calls.fork("trimmed first", "fork", int(calls.head("trimmed first")["stream-next-offset"]))
    calls.append_json("fork", "own")
    archive.run(spark, options)
    again = calls.sibling(f"{calls.bucket}-again")
    rebuild = LoadOptions(make_target(again.url, again.bucket), lake=options.lake, lake_bucket=calls.bucket)
    done = load.run(spark, rebuild)
    assert done.facts["streams whose beginning was gone before it was archived"] == 2
    assert again.messages("archived first") == [*range(20), "after"]
    assert again.messages("trimmed first") == ["after"]
    assert again.messages("fork") == ["own"]
