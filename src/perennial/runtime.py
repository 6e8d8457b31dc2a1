"""Puts the rooms together: settings in, a running application out. Used by the command and by ASGI hosts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from perennial.http.application import Application
from perennial.http.tracing import Tracing
from perennial.proxy.operations import Proxy
from perennial.service.clock import SteadyClock
from perennial.service.housekeeping import Housekeeper
from perennial.service.quotas import Quota, Quotas
from perennial.service.streams import StreamService
from perennial.settings import Settings
from perennial.store.rocks import RocksStore


def _quotas(service: StreamService, settings: Settings) -> Quotas | None:
    default = Quota(settings.bucket_max_streams, settings.bucket_max_bytes)
    by_bucket = {bucket: Quota(quota.streams, quota.bytes) for bucket, quota in settings.quotas.items()}
    return Quotas(service.buckets, default, by_bucket) if by_bucket or default != Quota() else None


@asynccontextmanager
async def open_application(settings: Settings) -> AsyncIterator[Application]:
    """The application over the store in `settings.data`; everything accepted is durable when it closes."""
    tracing = Tracing(settings.otel_endpoint) if settings.otel_endpoint else None
    try:
        async with _open_application(settings, tracing) as application:
            yield application
    finally:
        if tracing is not None:
            await tracing.close()


@asynccontextmanager
async def _open_application(settings: Settings, tracing: Tracing | None) -> AsyncIterator[Application]:
    # In a thread, although opening leaves others no time to run (see `stand_in`): what follows it does.
    store = await asyncio.to_thread(RocksStore, Path(settings.data))
    service = StreamService(store, deadlines=SteadyClock(Path(settings.data) / "clock"))
    service.quotas = _quotas(service, settings)
    housekeeper = Housekeeper(service)
    housekeeper.start()
    proxy: Proxy | None = None
    try:
        proxy = Proxy(service, settings)
        proxy.recover()
        # Whoever reads first shall find the ends that the last run left out.
        await service.committer.settle()
        application = Application(service, settings, proxy, tracing)
        try:
            yield application
        finally:
            application.drain()
    finally:
        if proxy is not None:
            await proxy.stop()
        await housekeeper.stop()
        await service.close()
