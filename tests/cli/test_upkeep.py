"""`check`, `backup`, `restore`: of a server that goes on serving, and of what is left of one."""

import json
import shutil
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perennial.cli.exits import Code
from perennial.store import keys
from perennial.store.rocks import RocksStore
from perennial.store.rocks_batch import RocksBatch
from tests.cli.run import Command
from tests.harness.server import ServerProcess
from tests.harness.small_disk import MIB, mount
from tests.harness.wire import Wire

TEXT = {"Content-Type": "text/plain"}


def fill(perennial: Command) -> None:
    """A little of everything that a store can hold."""
    perennial.ok("create", "plain", "-t", "text/plain", "-d", "abc")
    perennial.ok("append", "plain", "--producer", "p", "-d", "def")
    perennial.ok("fork", "plain", "fork", "--offset", "0000000000000004")
    perennial.ok("append", "fork", "-d", "XYZ")
    perennial.ok("fork", "fork", "grandchild")
    perennial.ok("rm", "fork")
    perennial.ok("create", "gone", "-t", "text/plain", "-d", "soon gone")
    perennial.ok("rm", "gone")
    perennial.ok("create", "idle", "--ttl", 1000)
    perennial.ok("bucket", "create", "other")
    perennial.ok("create", "json", "-b", "other", "-t", "application/json")
    numbers = b"".join(b"%d\n" % number for number in range(10_000))
    perennial.ok("append", "json", "-b", "other", "--lines", stdin=numbers)
    offset = json.loads(perennial.ok("head", "json", "-b", "other", "--json"))["next_offset"]
    perennial.ok("snapshot", "json", "-b", "other", "-p", "-", "-o", offset, stdin=b"fold" * 500_000)
    perennial.ok("append", "json", "-b", "other", "--lines", stdin=numbers)
    perennial.ok("append", "large", "--create", stdin=bytes(range(256)) * 8000)
    perennial.ok("close", "large")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a server that was stopped."""
    directory = tmp_path_factory.mktemp("filled")
    with ServerProcess(directory / "data") as server:
        fill(Command(server.url, directory))
    return directory / "data"


@pytest.fixture
def copy(filled: Path, tmp_path: Path) -> Path:
    Command("", tmp_path).ok("backup", filled, "copy", "--no-check")
    return tmp_path / "copy"


def test_a_whole_store_is_whole(filled: Path, tmp_path: Path) -> None:
    perennial = Command("", tmp_path)
    report = json.loads(perennial.ok("check", filled, "--json"))
    assert report["problems"] == []
    # plain, grandchild, idle, large and json; fork is only kept for its own fork.
    assert (report["streams"], report["buckets"], report["snapshots"]) == (5, 3, 1)
    assert b"whole" in perennial.ok("check", filled)


def test_a_store_after_a_crash_is_whole(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        fill(Command(server.url, tmp_path))
        server.kill()
    Command("", tmp_path).ok("check", "data")


def test_a_store_in_use_is_not_checked(server: ServerProcess, tmp_path: Path) -> None:
    ended = Command("", tmp_path)("check", server.data)
    assert ended.code == Code.FAILED
    assert "in use" in ended.err


@pytest.fixture
def read_only(copy: Path, tmp_path: Path) -> Iterator[Path]:
    """A backup on a disk of its own that nobody may write to."""
    place = tmp_path / "shelf"
    place.mkdir()
    mount(place, "-t", "tmpfs", "-o", f"size={64 * MIB}", "tmpfs")
    try:
        shutil.copytree(copy, place / "copy")
        mount(place, "-o", "remount,ro")
        yield place / "copy"
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)


def test_what_cannot_be_written_is_not_said_to_be_in_use(read_only: Path, tmp_path: Path) -> None:
    perennial = Command("", tmp_path)
    for ended in (perennial("check", read_only), perennial("backup", read_only, "second")):
        assert ended.code == Code.FAILED
        assert f"cannot write to {read_only}" in ended.err
    assert "whole" in perennial("restore", read_only, "restored").err


def test_a_mount_point_is_refused_before_anything_is_copied(copy: Path, tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    mount(place, "-t", "tmpfs", "tmpfs")
    try:
        ended = Command("", tmp_path)("restore", copy, place)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)
    assert ended.code == Code.FAILED
    assert f"{place} is a mount point" in ended.err
    assert str(place / "data") in ended.err


def test_the_secret_stays_its_owners(filled: Path, tmp_path: Path) -> None:
    perennial = Command("", tmp_path)
    perennial.ok("backup", filled, "copy")
    perennial.ok("restore", "copy", "restored")
    for directory in (filled, tmp_path / "copy", tmp_path / "restored"):
        assert stat.filemode((directory / "proxy-secret").stat().st_mode) == "-rw-------", directory


def test_a_file_of_a_backup_that_cannot_be_read_is_named(copy: Path, tmp_path: Path) -> None:
    (copy / "rocks" / "CURRENT").unlink()
    (copy / "rocks" / "CURRENT").mkdir()
    ended = Command("", tmp_path)("restore", copy, "restored")
    assert ended.code == Code.FAILED
    assert f"cannot read {copy / 'rocks' / 'CURRENT'}" in ended.err
    assert not (tmp_path / "restored").exists()


def test_a_backup_asked_for_with_too_little_says_what_it_takes(tmp_path: Path) -> None:
    config = tmp_path / "perennial.toml"
    secret = Command("", tmp_path).ok("token", "create", "ops", "-c", config, "-s", "admin").decode().strip()
    with ServerProcess(tmp_path / "data", env={"PERENNIAL_CONFIG": str(config)}) as server:
        ended = Command(server.url, tmp_path)("backup", server.url, "copy", "--token", secret)
    assert ended.code == Code.DENIED
    assert "service token" in ended.err


def test_where_there_is_no_store(tmp_path: Path) -> None:
    assert Command("", tmp_path)("check", "nowhere").code == Code.NOT_FOUND
    assert Command("", tmp_path)("backup", "nowhere", "copy").code == Code.NOT_FOUND
    assert Command("", tmp_path)("restore", "nowhere", "copy").code == Code.NOT_FOUND


def test_a_flipped_bit_is_found_and_its_file_named(copy: Path, tmp_path: Path) -> None:
    table = max((copy / "rocks").glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    ended = Command("", tmp_path)("check", copy)
    assert ended.code == Code.FAILED
    assert table.name in ended.out.decode()
    assert "Traceback" not in ended.err
    refused = Command("", tmp_path)("restore", copy, "again")
    assert refused.code == Code.FAILED
    assert table.name in refused.err
    assert not (tmp_path / "again").exists()


def _stream_id(store: RocksStore, name: str) -> int:
    row = store.stream(keys.stream_key("default", name))
    assert row is not None
    return row.state.id


def _remove_block(store: RocksStore, batch: RocksBatch) -> None:
    batch.raw.delete(keys.block_key(_stream_id(store, "large"), 0), batch._families["blocks"])


def _move_tail(store: RocksStore, batch: RocksBatch) -> None:
    import msgspec

    key = keys.stream_key("default", "plain")
    row = store.stream(key)
    assert row is not None
    state = msgspec.structs.replace(row.state, tail=row.state.tail + 1)
    batch.put_stream(key, msgspec.structs.replace(row, state=state))


def _lose_source(store: RocksStore, batch: RocksBatch) -> None:
    batch.remove_stream(keys.stream_key("default", "fork"))


def _lose_piece(store: RocksStore, batch: RocksBatch) -> None:
    row = store.stream(keys.stream_key("other", "json"))
    assert row is not None
    assert row.state.snapshot is not None
    batch.raw.delete(keys.block_key(row.state.snapshot.blob, 0), batch._families["blobs"])


def _garble_row(store: RocksStore, batch: RocksBatch) -> None:
    batch.raw.put(keys.stream_key("default", "idle"), b"\x93\x01\xff", batch._families["streams"])


def _garble_block(store: RocksStore, batch: RocksBatch) -> None:
    batch.put_blocks([(_stream_id(store, "plain"), 0, b"\x01\x00\x00")])


def _lose_feed(store: RocksStore, batch: RocksBatch) -> None:
    batch.clear_feed("other")


def _miscount(store: RocksStore, batch: RocksBatch) -> None:
    import msgspec

    row = store.bucket("default")
    assert row is not None
    batch.put_bucket("default", msgspec.structs.replace(row, streams=row.streams + 1))


def _orphan(store: RocksStore, batch: RocksBatch) -> None:
    from perennial.store.blocks import encode_append

    batch.put_blocks([(1_000_000, 0, encode_append(1, 1, b"x", [1]))])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_remove_block, "stream default/large: data is missing"),
        (_move_tail, "stream default/plain: data is missing"),
        (_lose_source, "its source default/fork is missing"),
        (_lose_piece, "stream other/json: its snapshot has"),
        (_garble_row, "stream default/idle: its row cannot be read"),
        (_garble_block, "stream default/plain: block at offset 0"),
        (_lose_feed, "stream other/json: holds"),
        (_miscount, "bucket default: counts"),
        (_orphan, "id 1000000 belongs to no stream"),
    ],
)
def test_what_does_not_fit_together_is_named(
    copy: Path, tmp_path: Path, damage: Callable[[RocksStore, RocksBatch], None], words: str
) -> None:
    store = RocksStore(copy)
    batch = store.batch()
    damage(store, batch)
    store.write(batch)
    store.close()
    ended = Command("", tmp_path)("check", copy)
    assert ended.code == Code.FAILED
    assert words in ended.out.decode()
    assert "Traceback" not in ended.err


def test_a_backup_of_a_running_server_is_served_like_the_original(
    server: ServerProcess, tmp_path: Path
) -> None:
    perennial = Command(server.url, tmp_path)
    fill(perennial)
    assert "whole" in perennial("backup", server.url, "copy").err
    perennial.ok("append", "plain", "-d", "after the backup")
    assert perennial("backup", server.url, "copy").code == Code.CONFLICT, "nothing is overwritten"
    perennial.ok("restore", "copy", "restored")
    with ServerProcess(tmp_path / "restored") as second:
        other = Command(second.url, tmp_path)
        assert other.ok("read", "plain") == b"abcdef"
        assert other.ok("read", "grandchild") == b"abcdXYZ"
        assert other.ok("read", "large") == perennial.ok("read", "large")
        assert other.ok("bootstrap", "json", "-b", "other") == perennial.ok(
            "bootstrap", "json", "-b", "other"
        )
        again = other("append", "plain", "--producer", "p", "-d", "def")
        assert "stored before" in again.err, "producers are remembered too"
    assert not list(server.data.glob("checkpoint-*"))


def test_a_backup_under_load_holds_what_was_acknowledged_before_and_no_half_commits(
    server: ServerProcess, tmp_path: Path
) -> None:
    perennial = Command(server.url, tmp_path)
    acknowledged = 0
    stop = threading.Event()
    with Wire(server.port) as wire:
        assert wire.request("PUT", "/v1/stream/s", TEXT).status == 201

    def write() -> None:
        nonlocal acknowledged
        with Wire(server.port) as wire:
            while not stop.is_set():
                line = b"%08d\n" % acknowledged
                assert wire.request("POST", "/v1/stream/s", TEXT, line).status == 204
                acknowledged += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            before = acknowledged
            perennial.ok("backup", server.url, f"copy-{number}")
            after = acknowledged
            assert after > before, "the server went on serving"
            with ServerProcess(tmp_path / f"copy-{number}") as second, Wire(second.port) as wire:
                content = Command(second.url, tmp_path).ok("read", "s")
            lines = content.splitlines()
            assert before <= len(lines) <= after + 1
            assert lines == [b"%08d" % index for index in range(len(lines))]
    finally:
        stop.set()
        writer.join()


def test_no_web_page_can_ask_for_a_backup(server: ServerProcess) -> None:
    with Wire(server.port) as wire:
        assert wire.request("POST", "/v1/admin/backup").status == 400
        assert wire.request("GET", "/v1/admin/backup").status == 405
        preflight = wire.request("OPTIONS", "/v1/admin/backup")
        assert "perennial-admin" not in preflight.headers["access-control-allow-headers"].lower()


def test_a_backup_cut_off_leaves_nothing(server: ServerProcess, tmp_path: Path) -> None:
    perennial = Command(server.url, tmp_path)
    perennial.ok("append", "large", "--create", stdin=bytes(40 << 20))
    with Wire(server.port, receive_buffer=4096) as wire:
        wire.ask("POST", "/v1/admin/backup", {"Perennial-Admin": "backup"})
        assert wire.head()[0] == 200
        assert list(server.data.glob("checkpoint-*"))
    perennial.ok("ls")
    deadline = threading.Event()
    for _ in range(100):
        if not list(server.data.glob("checkpoint-*")):
            return
        deadline.wait(0.1)
    raise AssertionError("the checkpoint is still there")
