"""Bringing backups in and out. What is not complete bears another name, so that nobody relies on it."""

import fcntl
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import perennial
from perennial.cli.exits import Code, Trouble, die, say
from perennial.cli.progress import watching
from perennial.cli.session import Reply, Session, refused
from perennial.client.wire import Answer, ConnectionLost
from perennial.store.archives import MANIFEST, NAME, PIECE_BYTES, SECRET_FILE, files_of, pack


def fetch(url: str, token: str | None, target: Path) -> int:
    """From a running server; returns the number of bytes."""
    elsewhere = "A stopped one is backed up by its data directory"
    with Session(url, token, elsewhere=elsewhere) as session:
        address = f"{session.url}/v1/admin/backup"
        try:
            with session.open("POST", address, {"perennial-admin": "backup"}) as answer:
                if answer.status != 200:
                    trouble = refused(Reply(answer.status, answer.headers, answer.read()))
                    if answer.status == 403:
                        trouble.hint = "a backup holds everything: it takes a service token (auth_tokens)"
                    raise trouble
                total = answer.headers.get("perennial-backup-bytes")
                if total is None:
                    raise session.not_perennial("a backup")
                return _unpack(_Body(answer), target, int(total) or None)
        except ConnectionLost as error:
            raise session.unreachable(address, error) from error


def take_offline(data: Path, target: Path) -> int:
    """From a data directory that nobody has open."""
    from perennial.store.errors import StoreError
    from perennial.store.rocks import RocksStore

    try:
        store = RocksStore(data)
    except StoreError as error:
        die(str(error))
    try:
        with tempfile.TemporaryDirectory(prefix="checkpoint-", dir=data) as directory:
            checkpoint = Path(directory) / "copy"
            store.checkpoint(checkpoint)
            files = files_of(checkpoint, data)
            archive = pack(files, store.last_change(), perennial.__version__)
            return _unpack(_Pieces(archive), target, sum(path.stat().st_size for _, path in files))
    except StoreError as error:
        die(str(error))
    finally:
        store.close()


def copy_back(source: Path, directory: Path) -> int:
    """Out of a backup into a data directory."""
    manifest = _read_manifest(source / MANIFEST)
    total = 0
    with _taking_shape(directory) as place, watching(_size(manifest), None) as advance:
        for name, expected in manifest["files"].items():
            if not NAME.fullmatch(name):
                die(f"{source / MANIFEST} lists {name!r}, which is no file of a backup")
            with _opened(source / name) as content:
                found = _copy(content, place / name, int(expected["bytes"]), advance)
            _compare(source / name, found, expected)
            total += int(expected["bytes"])
    return total


def is_in_use(directory: Path) -> bool:
    """Does another process have the store open? RocksDB holds a lock on this file as long as it does."""
    path = directory / "rocks" / "LOCK"
    try:
        # A shared lock takes no right to write; whether there is one is another question than this.
        with path.open("rb") as lock:
            try:
                fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):  # POSIX lets a system say either
                return True
            return False
    except FileNotFoundError:
        return False
    except OSError as error:
        die(f"cannot read {path}: {error.strerror}")


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except FileNotFoundError:
        die(f"{path} is missing")
    except OSError as error:
        die(f"cannot read {path}: {error.strerror}")


def _unpack(archive: "_Body | _Pieces", target: Path, total: int | None) -> int:
    found: dict[str, dict[str, Any]] = {}
    manifest: dict[str, Any] | None = None
    size = 0
    with _taking_shape(target) as place, watching(total, None) as advance:
        try:
            with tarfile.open(fileobj=io.BufferedReader(archive, PIECE_BYTES), mode="r|") as tar:
                for member in tar:
                    if not member.isfile() or not NAME.fullmatch(member.name):
                        die(f"the archive holds {member.name!r}, which is no file of a backup")
                    content = tar.extractfile(member)
                    assert content is not None, "isfile() says so"
                    entry = _copy(content, place / member.name, member.size, advance)
                    if member.name == MANIFEST:
                        manifest = _read_manifest(place / MANIFEST)
                    else:
                        found[member.name] = entry
                        size += member.size
        except (tarfile.TarError, EOFError) as error:
            die(f"the archive is damaged: {error}")
        if manifest is None or manifest["files"].keys() != found.keys():
            die("the archive is not complete")
        for name, expected in manifest["files"].items():
            _compare(Path(name), found[name], expected)
    return size


def _copy(content: Any, path: Path, size: int, advance: Callable[[int], None]) -> dict[str, Any]:
    path.parent.mkdir(exist_ok=True)
    hashed = hashlib.sha256()
    written = 0
    with open(path, "xb", opener=_private if path.name == SECRET_FILE else None) as copy:
        while piece := content.read(PIECE_BYTES):
            hashed.update(piece)
            copy.write(piece)
            written += len(piece)
            advance(len(piece))
        copy.flush()
        os.fsync(copy.fileno())
    return {"bytes": written, "sha256": hashed.hexdigest()}


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _compare(path: Path, found: dict[str, Any], expected: dict[str, Any]) -> None:
    if found != {"bytes": expected["bytes"], "sha256": expected["sha256"]}:
        die(f"{path} is damaged: it is not what was backed up", hint="take another backup")


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
        assert isinstance(manifest["files"], dict)
    except (OSError, ValueError, KeyError, AssertionError) as error:
        die(f"{path} cannot be read: {error}")
    return manifest


def _size(manifest: dict[str, Any]) -> int:
    return sum(int(entry["bytes"]) for entry in manifest["files"].values())


@contextmanager
def _taking_shape(target: Path) -> Iterator[Path]:
    """A directory that gets its name when everything in it is complete and on disk."""
    place = target.with_name(f"{target.name}.incomplete")
    try:
        if place.exists():
            say(f"removing {place}, which was never completed")
            shutil.rmtree(place)
        place.mkdir(parents=True)
        yield place
        if target.exists():
            target.rmdir()  # empty: seen to by the caller
        place.rename(target)
        for directory in (target, *filter(Path.is_dir, target.iterdir()), target.parent):
            fd = os.open(directory, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
    except OSError as error:
        shutil.rmtree(place, ignore_errors=True)
        raise Trouble(Code.FAILED, f"cannot write {target}: {error.strerror or error}") from error
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


class _Pieces(io.RawIOBase):
    """Pieces of bytes as a file to read from."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        taken = self._rest[: len(buffer)]
        self._rest = self._rest[len(taken) :]
        buffer[: len(taken)] = taken
        return len(taken)


class _Body(_Pieces):
    def __init__(self, answer: Answer) -> None:
        super().__init__(iter(answer.read_piece, b""))
