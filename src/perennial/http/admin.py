"""For whoever owns the server: `POST /v1/admin/backup` answers with all it holds, as a tar stream.

Only service tokens may, and without any, whoever can connect. The request needs a header that no web page can
send, since preflights do not allow it: a browser must not carry a backup of a local server to a stranger.
"""

import asyncio
import logging
import secrets
import shutil
from pathlib import Path
from typing import Final

import perennial
from perennial.http.errors import fail, reject
from perennial.http.exchange import Exchange
from perennial.http.streaming import Pump
from perennial.protocol.rejections import Malformed
from perennial.service.streams import StreamService
from perennial.store.archives import files_of, pack
from perennial.store.errors import StoreError
from perennial.store.rocks import CHECKPOINT_PREFIX, RocksStore

log = logging.getLogger("perennial.admin")

ADMIN_HEADER: Final = b"perennial-admin"
BACKUP_PATH: Final = "/v1/admin/backup"
SETTLE_SECONDS: Final = 0.05
SETTLE_TRIES: Final = 200


class AdminSurface:
    def __init__(self, service: StreamService) -> None:
        self._service = service
        self._tasks: set[asyncio.Task[None]] = set()

    def backup(self, exchange: Exchange) -> None:
        if exchange.request.headers.get(ADMIN_HEADER) != "backup":
            reject(exchange, Malformed("send the header 'Perennial-Admin: backup'"))
            return
        task = asyncio.get_running_loop().create_task(self._backup(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _backup(self, exchange: Exchange) -> None:
        store = self._service.store
        assert isinstance(store, RocksStore), "the only engine there is"
        checkpoint = store.directory / f"{CHECKPOINT_PREFIX}{secrets.token_hex(8)}"
        try:
            for _ in range(SETTLE_TRIES):
                if not store.prepare_checkpoint():
                    break
                await asyncio.sleep(SETTLE_SECONDS)
            if exchange.closed:
                return
            # In one step with nothing in between: the state after some commit, and never inside one.
            last_change = store.last_change()
            store.checkpoint(checkpoint)
        except StoreError as error:
            log.error("backup failed: %s", error)
            fail(exchange, 503, "NOT_STORED", "the disk did not take the checkpoint; the log says why")
            return
        self._send(exchange, checkpoint, last_change)

    def _send(self, exchange: Exchange, checkpoint: Path, last_change: int) -> None:
        files = files_of(checkpoint, checkpoint.parent)
        size = sum(path.stat().st_size for _, path in files)
        exchange.begin(
            200,
            [
                (b"content-type", b"application/x-tar"),
                (b"cache-control", b"no-store"),
                (b"perennial-backup-bytes", b"%d" % size),
            ],
        )
        log.info("sending a backup of %d bytes, as of change %d", size, last_change)
        pieces = pack(files, last_change, perennial.__version__)
        Pump(exchange, pieces, lambda: shutil.rmtree(checkpoint, ignore_errors=True)).start()
