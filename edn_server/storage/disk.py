"""Watches the disk of the database: refuses growth when space is short, returns free pages."""

from __future__ import annotations

import asyncio
import contextlib
import time

import structlog

from edn.errors import Unavailable
from edn.runtime.disk import Disk, Shortage, Space
from edn.runtime.ownership import any_thread, owned
from edn_server.storage.database import Reclaim, SqliteStore
from edn_server.storage.interface import Reader, StoreError
from edn_server.storage.store import Store

logger = structlog.get_logger()

#: bytes of the emergency reserve beside the database
RESERVE_BYTES = 4 << 20


@owned("loop")
class DiskWatch:
    def __init__(self, store: SqliteStore, *, server: str, floor: int) -> None:
        """`floor`: free bytes below which `check` refuses; `server`: this server's id, for the message."""
        self._store = store
        self._server = server
        path = store.path / "server.db"
        self._disk = Disk(path, watermark=floor, reserve=min(RESERVE_BYTES, floor // 4))
        #: set while frames and subscriptions are refused
        self.shortage: Shortage | None = self._disk.shortage(store.load(self._disk.measure))
        self._reader: Reader | None = None

    async def check(self) -> None:
        """Raises `Unavailable` if the database must not grow; the dispatcher keeps refused frames."""
        if self._reader is not None:
            # The frames of one second can be larger than the floor.
            self._judge(await self._reader.reading(self._disk.measure))
        if self.shortage is not None:
            raise Unavailable(f"server {self._server}: {self.shortage}", retry_after=1)

    @any_thread
    def on_full(self) -> None:
        """Frees the reserve, so that deletions have room; in the writer's thread."""
        logger.warning("disk_full", reserve_freed=self._disk.free_reserve())

    async def run(self) -> None:
        """Measures the disk every second, and returns free pages to it."""
        with contextlib.closing(self._store.reader("disk")) as reader:
            self._reader = reader
            try:
                while True:
                    try:
                        await self._keep_room(reader)
                    except (OSError, *StoreError) as error:
                        logger.error("disk_watch_failed", error=str(error))
                    await asyncio.sleep(1.0)
            finally:
                self._reader = None

    def _judge(self, space: Space) -> None:
        before, self.shortage = self.shortage, self._disk.shortage(space)
        if (before is None) != (self.shortage is None):
            logger.warning(
                "disk_floor",
                refusing=self.shortage is not None,
                free=space.free,
                reusable=space.reusable,
                wal=space.wal,
                needed=self._disk.watermark,
            )

    async def _keep_room(self, reader: Reader) -> None:
        space = await reader.reading(self._disk.measure)
        self._judge(space)
        if self.shortage is None:
            self._disk.keep_reserve(space)
        short, slack = self.shortage is not None, self._disk.slack(space)
        until = time.monotonic() + (0.5 if short else 0.1)
        if space.reusable > slack or (short and space.wal):
            while await self._store.committed(Reclaim(slack)) and time.monotonic() < until:
                pass


@owned("loop")
class DatabaseWatch:
    """Refuses growth while the database does not answer; the counterpart of `DiskWatch`."""

    #: the disk of the database is on another machine
    shortage: Shortage | None = None

    def __init__(self, store: Store, *, server: str) -> None:
        self._store = store
        self._server = server

    async def check(self) -> None:
        """Raises `Unavailable` while nothing can be committed; the dispatcher keeps refused frames."""
        if (outage := self._store.unavailable) is not None:
            raise Unavailable(f"server {self._server}: {outage}", retry_after=1)

    @any_thread
    def on_full(self) -> None:
        pass

    async def run(self) -> None:
        await asyncio.Event().wait()
