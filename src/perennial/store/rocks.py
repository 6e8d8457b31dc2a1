"""The embedded engine: RocksDB through `rocksdict`, one column family per kind of row.

Writes go to RocksDB without its own sync; `wal` makes them durable.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from rocksdict import (
    AccessType,
    Cache,
    Checkpoint,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteOptions,
)

from perennial.protocol.state import ProducerState
from perennial.store import keys
from perennial.store.blocks import Block
from perennial.store.claiming import in_use
from perennial.store.errors import StoreCorrupt, StoreError, StoreFull
from perennial.store.hot_blocks import HotBlocks
from perennial.store.interface import Batch, BucketRow, StreamRow
from perennial.store.keys import LAST, Garbage
from perennial.store.rocks_batch import RocksBatch
from perennial.store.tuning import BLOCK_CACHE_BYTES, HOT_BLOCKS_BYTES, database_options, family_options
from perennial.store.wal import WriteAheadLog

FORMAT: Final = b"2"
# What this version reads as well, and turns into FORMAT by opening it. In 1 no row lags.
FORMER_FORMATS: Final = (b"1",)

# Below this, deleting key by key beats leaving a range tombstone that every later scan must step over.
POINT_DELETES: Final = 256

# Under this name in the data directory, checkpoints wait to be fetched.
CHECKPOINT_PREFIX: Final = "checkpoint-"
# What may still be in memory when a checkpoint is taken, which is when the event loop waits for it.
CHECKPOINT_BYTES: Final = 8 << 20

T = TypeVar("T")


def _decoder(row: type[T]) -> Callable[[bytes], T]:
    decode = msgspec.msgpack.Decoder(row).decode

    def checked(value: bytes) -> T:
        try:
            return decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreCorrupt(f"a {row.__name__} cannot be read: {error}") from error

    return checked


_stream_row = _decoder(StreamRow)
_producer_state = _decoder(ProducerState)
_bucket_row = _decoder(BucketRow)

_FAMILY_NOTE = re.compile(r'^\[CFOptions "(.*)"\]$', re.MULTILINE)


class RocksStore:
    """See `interface.Store`."""

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        self.directory = directory
        wal_directory = directory / "wal"
        if not read_only:
            wal_directory.mkdir(parents=True, exist_ok=True)
        self._wal = WriteAheadLog(wal_directory)
        self._wal.verify()
        _check_manifest(directory / "rocks")
        cache = Cache(BLOCK_CACHE_BYTES)
        families = {name: family_options(name, cache) for name in keys.COLUMN_FAMILIES}
        self._hot_blocks = HotBlocks(HOT_BLOCKS_BYTES)
        try:
            self._db = Rdict(
                str(directory / "rocks"),
                database_options(cache, wal_directory),
                column_families=families,
                access_type=AccessType.read_only(False) if read_only else AccessType.read_write(),
            )
        except Exception as error:
            raise _opening_failed(directory, error) from error
        self._wal.verify_recovered(self._db.latest_sequence_number())
        self._tables = {name: self._db.get_column_family(name) for name in keys.COLUMN_FAMILIES}
        self._families = {name: self._db.get_column_family_handle(name) for name in keys.COLUMN_FAMILIES}
        self._write_options = WriteOptions()
        self._write_options.sync = False
        self._read_only = read_only
        if read_only:
            return
        self._check_format()
        self._wal.open(self._db.latest_sequence_number())
        self._forget_unfinished_uploads()
        self._remove_old_checkpoints()

    # Writing

    def batch(self) -> RocksBatch:
        return RocksBatch(self._families)

    def write(self, batch: Batch) -> None:
        assert isinstance(batch, RocksBatch), "batches come from batch()"
        try:
            self._db.write(batch.raw, self._write_options)
        except Exception as error:
            self._wal.write_failed()
            raise _writing_failed(self.directory, error) from error

    def sync(self) -> None:
        self.begin_sync()()
        self.end_sync()

    def begin_sync(self) -> Callable[[], None]:
        wait = self._try(partial(self._wal.begin_sync, self._db.latest_sequence_number()))
        return partial(self._try, wait)

    def end_sync(self) -> None:
        self._try(self._wal.end_sync)

    def _try(self, step: Callable[[], T]) -> T:
        try:
            return step()
        except OSError as error:
            raise _writing_failed(self.directory, error) from error

    # Reading

    def stream(self, key: bytes) -> StreamRow | None:
        value = self._get("streams", key)
        return None if value is None else self.decode_row(value)

    def streams(self, bucket: str, prefix: str, after: str) -> Iterator[tuple[str, StreamRow]]:
        start = keys.stream_key(bucket, max(prefix, after))
        for key, value in self._scan("streams", start, keys.after(keys.stream_key(bucket, prefix))):
            name = key.decode().partition("\0")[2]
            if name > after or not after:
                yield name, self.decode_row(value)

    def decode_row(self, value: bytes) -> StreamRow:
        row = _stream_row(value)
        if not row.lags:
            return row
        state = row.state
        iterator = self._tables["blocks"].iter()
        iterator.seek_for_prev(keys.block_key(state.id, LAST))
        _raise_if_broken(iterator)
        if not iterator.valid() or keys.parse_block_key(iterator.key())[0] != state.id:
            return row
        last = Block(keys.parse_block_key(iterator.key())[1], iterator.value())
        if last.end <= state.tail:
            return row
        grown = msgspec.structs.replace(state, tail=last.end, last_write_ms=last.times[-1] // 1000)
        return msgspec.structs.replace(row, state=grown)

    def producer(self, stream_id: int, producer_id: str) -> ProducerState | None:
        value = self._get("producers", keys.producer_key(stream_id, producer_id))
        return None if value is None else _producer_state(value)

    def blocks(self, stream_id: int, start: int, end: int) -> Iterator[Block]:
        options = ReadOptions()
        options.set_iterate_upper_bound(keys.block_key(stream_id, end))
        iterator = self._tables["blocks"].iter(options)
        # The block that covers `start` may begin before it.
        first = keys.block_key(stream_id, start)
        iterator.seek_for_prev(first)
        _raise_if_broken(iterator)  # another seek would step over the damage
        if not iterator.valid() or keys.parse_block_key(iterator.key())[0] != stream_id:
            iterator.seek(first)
        while iterator.valid():
            key = iterator.key()
            block = self._hot_blocks.get(key)
            if block is None:
                block = Block(keys.parse_block_key(key)[1], iterator.value())
                self._hot_blocks.keep(key, block)
            # To a walk that began before a run was sealed, a hot block may hold what comes next as well.
            if block.end > start:
                yield block
                start = block.end
            iterator.next()
        _raise_if_broken(iterator)

    def block_values(self, stream_id: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        for row in self._walk("blocks", keys.block_key(stream_id, start), keys.block_key(stream_id, end)):
            yield keys.parse_block_key(row.key())[1], row.value()

    def sealed_until(self, stream_id: int) -> int:
        value = self._get("sealed", keys.number_key(stream_id))
        return 0 if value is None else keys.parse_number(value)

    def due(self, now_ms: int, limit: int) -> list[tuple[int, bytes]]:
        passed = self._keys("expiry", b"", keys.number_key(now_ms + 1))
        return [keys.parse_expiry_key(key) for key in islice(passed, limit)]

    def bucket(self, bucket: str) -> BucketRow | None:
        value = self._get("buckets", bucket.encode())
        return None if value is None else _bucket_row(value)

    def next_id(self) -> int:
        value = self._get("meta", b"next_id")
        return 1 if value is None else keys.parse_number(value)

    def piece(self, blob: int, index: int) -> bytes | None:
        return self._get("blobs", keys.block_key(blob, index))

    def feed(self, bucket: str, position: int) -> Iterator[tuple[int, bytes]]:
        options = ReadOptions()
        options.set_iterate_upper_bound(keys.feed_key(bucket, LAST))
        # A bulk read would push out what live readers come back to. (The stub has forgotten the argument.)
        options.fill_cache(False)  # type: ignore[call-arg]
        iterator = self._tables["feed"].iter(options)
        first = keys.feed_key(bucket, position)
        iterator.seek_for_prev(first)
        _raise_if_broken(iterator)  # another seek would step over the damage
        if not iterator.valid() or not iterator.key().startswith(first[:-8]):
            iterator.seek(first)
        while iterator.valid():
            yield keys.parse_number(iterator.key()[-8:]), iterator.value()
            iterator.next()
        _raise_if_broken(iterator)

    def feed_sealed_until(self, bucket: str) -> int:
        value = self._get("meta", b"feed_sealed:" + bucket.encode())
        return 0 if value is None else keys.parse_number(value)

    def graves(self, bucket: str) -> dict[int, int]:
        prefix = bucket.encode() + b"\0"
        rows = self._scan("graves", prefix, keys.after(prefix))
        return {keys.parse_number(key[-8:]): keys.parse_number(value) for key, value in rows}

    def proxy_row(self, key: bytes) -> bytes | None:
        return self._get("proxy", key)

    def proxy_rows(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._scan("proxy", prefix, keys.after(prefix))

    # Housekeeping

    def sizes(self) -> dict[str, int]:
        def ask(table: Rdict, name: str) -> int:
            return int(table.property_int_value(f"rocksdb.{name}") or 0)

        sizes = {name: ask(table, "total-sst-files-size") for name, table in self._tables.items()}
        sizes["wal"] = self._wal.size()
        sizes["memory"] = sum(ask(table, "cur-size-all-mem-tables") for table in self._tables.values())
        sizes["cache"] = ask(self._db, "block-cache-usage") + self._hot_blocks.bytes
        return sizes

    def collect_garbage(self, held: Callable[[int], bool]) -> bool:
        for key, value in self._scan("garbage", b"", None):
            kind, number = key[:1], keys.parse_number(key[1:])
            if held(number):
                continue
            batch = self.batch()
            if kind == Garbage.TRIM:
                self._trim(batch, number, keys.parse_number(value))
            elif kind == Garbage.BLOB:
                self._delete_all(batch, "blobs", number)
            else:
                self._delete_all(batch, "blocks", number)
                self._delete_all(batch, "producers", number)
                batch.raw.delete(keys.number_key(number), self._families["sealed"])
            # In the same batch, so that a crash before it only means starting over.
            batch.raw.delete(key, self._families["garbage"])
            self.write(batch)
            return True
        return False

    def _delete_all(self, batch: RocksBatch, family: str, number: int) -> None:
        self._delete_between(batch, family, keys.number_key(number), keys.number_key(number + 1))

    def _trim(self, batch: RocksBatch, stream_id: int, offset: int) -> None:
        """Every block that ends at or before `offset`."""
        iterator = self._tables["blocks"].iter()
        iterator.seek_for_prev(keys.block_key(stream_id, offset))
        _raise_if_broken(iterator)
        first = keys.block_key(stream_id, 0)
        if not iterator.valid() or iterator.key() < first:
            return
        kept = iterator.key()
        if Block(keys.parse_block_key(kept)[1], iterator.value()).end <= offset:
            kept = keys.block_key(stream_id, offset)
        self._delete_between(batch, "blocks", first, kept)

    def _delete_between(self, batch: RocksBatch, family: str, first: bytes, last: bytes) -> None:
        doomed = list(islice(self._keys(family, first, last), POINT_DELETES + 1))
        if len(doomed) > POINT_DELETES:
            batch.raw.delete_range(first, last, self._families[family])
        else:
            for key in doomed:
                batch.raw.delete(key, self._families[family])

    def prepare_checkpoint(self) -> bool:
        """RocksDB writes down in the background what it holds in memory; False when little is left."""
        waiting = 0
        for table in self._tables.values():
            waiting += int(table.property_int_value("rocksdb.cur-size-all-mem-tables") or 0)
            table.flush(False)
        return waiting > CHECKPOINT_BYTES

    def checkpoint(self, target: Path) -> None:
        target.mkdir()
        (target / "wal").mkdir()
        try:
            Checkpoint(self._db).create_checkpoint(str(target / "rocks"))
            for log in (target / "rocks").glob("*.log"):
                log.rename(target / "wal" / log.name)
        except Exception as error:
            shutil.rmtree(target, ignore_errors=True)
            raise _writing_failed(self.directory, error) from error

    def _remove_old_checkpoints(self) -> None:
        # Of a backup that a crash cut off. The files they share with the store would never be freed.
        for old in self.directory.glob(f"{CHECKPOINT_PREFIX}*"):
            shutil.rmtree(old, ignore_errors=True)

    def last_change(self) -> int:
        """The number of the newest change; it only goes up, and a copy of the store has the same."""
        return int(self._db.latest_sequence_number())

    def rows(self, family: str) -> Iterator[tuple[bytes, bytes]]:
        """Everything of one kind as it is stored, with checksums verified; for `check`."""
        options = ReadOptions()
        options.set_verify_checksums(True)
        iterator = self._tables[family].iter(options)
        iterator.seek_to_first()
        while iterator.valid():
            yield iterator.key(), iterator.value()
            iterator.next()
        _raise_if_broken(iterator)

    def close(self) -> None:
        if not self._read_only:
            self.sync()
            self._wal.close()
        self._families.clear()
        try:
            for table in self._tables.values():
                table.close()
            self._tables.clear()
            self._db.close()
        except Exception as error:  # closing flushes, and the disk may be full
            raise _writing_failed(self.directory, error) from error

    def _get(self, family: str, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._tables[family].get(key)
        except Exception as error:
            raise StoreCorrupt(f"cannot read the store: {error}") from error
        return value

    def _scan(self, family: str, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        for row in self._walk(family, start, end):
            yield row.key(), row.value()

    def _keys(self, family: str, start: bytes, end: bytes | None) -> Iterator[bytes]:
        for row in self._walk(family, start, end):
            yield row.key()

    def _walk(self, family: str, start: bytes, end: bytes | None) -> Iterator[RdictIter]:
        """An iterator that stands on one row after another, from `start` to before `end`."""
        # The bound is not copied: its bytes, or the options, which keep them, must outlive the iterator.
        options = ReadOptions()
        if end is not None:
            options.set_iterate_upper_bound(end)
        iterator = self._tables[family].iter(options)
        iterator.seek(start)
        while iterator.valid():
            yield iterator
            iterator.next()
        _raise_if_broken(iterator)

    def _forget_unfinished_uploads(self) -> None:
        batch = self.batch()
        for key in self._keys("uploads", b"", None):
            batch.discard_blob(keys.parse_number(key))
            batch.keep_blob(keys.parse_number(key))
        self.write(batch)

    def _check_format(self) -> None:
        found = self._get("meta", b"format")
        if found is None:
            if self._wal.has_acknowledged:
                rocks = self.directory / "rocks"
                raise StoreCorrupt(f"{rocks} has lost tables: its MANIFEST is damaged. Restore a backup")
            self._tables["meta"][b"format"] = FORMAT
        elif found in FORMER_FORMATS:
            self._tables["meta"][b"format"] = FORMAT
        elif found != FORMAT:
            raise StoreError(
                f"{self.directory} has store format {found.decode()}, this version reads {FORMAT.decode()}: "
                "use the version of perennial that wrote it, or export and load the data again"
            )


def _check_manifest(rocks: Path) -> None:
    """RocksDB notes twice which tables it has. A MANIFEST that lost its end knows fewer, and would open."""
    # A crash may leave one half-written, under a name of its own.
    notes = [path for path in rocks.glob("OPTIONS-*") if path.name.partition("-")[2].isdecimal()]
    notes.sort(key=lambda path: int(path.name.partition("-")[2]))
    if not notes:
        return
    # Only a note: RocksDB opens without it, and so do we, whatever has become of its bytes.
    noted = set(_FAMILY_NOTE.findall(notes[-1].read_text(errors="replace"))) & set(keys.COLUMN_FAMILIES)
    try:
        known = set(Rdict.list_cf(str(rocks)))
    except Exception:
        return  # opening will say it better
    if missing := sorted(noted - known):
        manifest = rocks / (rocks / "CURRENT").read_text().strip()
        raise StoreCorrupt(
            f"{manifest} is damaged: it has lost the tables {', '.join(missing)}, which {notes[-1].name} "
            "still knows. Nothing was changed; restore a backup"
        )


def _opening_failed(directory: Path, error: Exception) -> StoreError:
    text = str(error)
    # Before the lock is spoken of: its file is the first that must be written to.
    if "Permission denied" in text or "Read-only file system" in text:
        return StoreError(
            f"cannot open the store in {directory}: {text}. It takes the user that it belongs to, and a disk "
            "that can be written to"
        )
    if "lock" in text.lower() and "LOCK" in text:
        return in_use(directory)
    if _is_full(text):
        return StoreFull(
            f"no space left in {directory}, and opening needs some: free a little. Nothing was lost"
        )
    return StoreCorrupt(
        f"cannot open the store in {directory}: {text}. Nothing was changed; restore a backup"
    )


def _writing_failed(directory: Path, error: Exception) -> StoreError:
    text = str(error)
    if _is_full(text):
        return StoreFull(f"no space left in {directory}: {text}")
    return StoreError(f"cannot write to the store in {directory}: {text}")


def _is_full(text: str) -> bool:
    return "No space left" in text or "Disk quota" in text


def _raise_if_broken(iterator: RdictIter) -> None:
    try:
        iterator.status()
    except Exception as error:
        raise StoreCorrupt(f"cannot read the store: {error}") from error
