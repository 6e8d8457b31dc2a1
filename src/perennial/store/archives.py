"""A checkpoint on its way out: a tar stream of its files, and at the end a list of them with their hashes."""

import hashlib
import json
import re
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MANIFEST: Final = "backup.json"
FORM: Final = 1
PIECE_BYTES: Final = 256 * 1024
# Beside the store, and like it in every copy: what signs the proxy's URLs. Only its owner may read it.
SECRET_FILE: Final = "proxy-secret"
# What a backup may contain; anything else in an archive is refused.
NAME: Final = re.compile(r"(?:(?:rocks|wal)/)?[A-Za-z0-9][A-Za-z0-9._-]{0,100}")

_BLOCK: Final = 512


def files_of(checkpoint: Path, data: Path) -> list[tuple[str, Path]]:
    """Names and places of what belongs to a backup: the checkpoint, and the small files beside the store."""
    beside = [path for path in data.iterdir() if path.is_file()]
    inside = [path for path in checkpoint.rglob("*") if path.is_file()]
    found = [(path.name, path) for path in beside]
    found += [(str(path.relative_to(checkpoint)), path) for path in inside]
    return sorted((name, path) for name, path in found if NAME.fullmatch(name) and name != MANIFEST)


def pack(files: list[tuple[str, Path]], last_change: int, version: str) -> Iterator[bytes]:
    """The tar stream, piece by piece."""
    listed: dict[str, dict[str, object]] = {}
    for name, path in files:
        hashed = hashlib.sha256()
        with path.open("rb") as source:
            size = path.stat().st_size
            yield _head(name, size)
            left = size
            while left:
                piece = source.read(min(PIECE_BYTES, left))
                if not piece:
                    raise OSError(f"{path} has become shorter")
                hashed.update(piece)
                left -= len(piece)
                yield piece
        yield bytes(-size % _BLOCK)
        listed[name] = {"bytes": size, "sha256": hashed.hexdigest()}
    manifest = manifest_of(listed, last_change, version)
    yield _head(MANIFEST, len(manifest)) + manifest + bytes(-len(manifest) % _BLOCK)
    yield bytes(2 * _BLOCK)


def manifest_of(listed: dict[str, dict[str, object]], last_change: int, version: str) -> bytes:
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    content = {"form": FORM, "version": version, "made": made, "last_change": last_change, "files": listed}
    return json.dumps(content, indent=1).encode() + b"\n"


def _head(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o600
    info.mtime = int(time.time())
    return info.tobuf(tarfile.PAX_FORMAT)
