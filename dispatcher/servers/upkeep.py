"""Keeps disk space for the log: measures the disk, truncates the log, returns free pages."""

from __future__ import annotations

import time

import structlog

from dispatcher.servers.backup_gate import BackupGate
from dispatcher.servers.pipeline import Backpressure
from dispatcher.servers.registry import ServerRegistry
from dispatcher.store import directory, retention, servers
from dispatcher.store.event_log import Log, LogFull
from edn.errors import Unavailable
from edn.runtime.disk import Space
from edn.runtime.ownership import owned

logger = structlog.get_logger()

#: interval between two truncations of the log
TRUNCATE_SECONDS = 5.0
#: how long an event id of a publisher is remembered
IDEMPOTENCE_SECONDS = 86_400.0
#: interval between deletions of unused credentials, and their least age
CREDENTIALS_SECONDS = 600.0


@owned("loop")
class Upkeep:
    def __init__(
        self, log: Log, registry: ServerRegistry, backpressure: Backpressure, backup_gate: BackupGate
    ) -> None:
        self._log = log
        self._registry = registry
        self._backpressure = backpressure
        self._backup_gate = backup_gate
        #: shortage of disk space, because of which no events are accepted
        self.shortage = log.disk.shortage(log.measure_space())
        # Measured at once, so that readiness changes without a delay.
        log.on_full = self._measure
        #: bytes accepted since the disk was last measured
        self._unmeasured = 0
        self._truncated, self._next_truncation = 0, 0.0
        self._next_forgetting = 0.0
        #: server → cursor that was stored last
        self._stored: dict[str, int] = {}

    def count(self, size: int) -> None:
        """Count bytes that will be written, and measure the disk after enough of them.

        The traffic of one second can exceed the watermark, so measuring every second is not enough.
        """
        self._unmeasured += size
        if self._unmeasured > self._log.disk.watermark // 16:
            self._measure()

    def _measure(self) -> Space:
        disk = self._log.disk
        space = self._log.measure_space()
        self._unmeasured = self._log.pending
        before, self.shortage = self.shortage, disk.shortage(space, self._log.pending)
        if (before is None) != (self.shortage is None):
            logger.warning(
                "disk_watermark",
                refusing=self.shortage is not None,
                free=space.free,
                reusable=space.reusable,
                wal=space.wal,
                needed=disk.watermark,
            )
        return space

    async def step(self) -> None:
        """Measure the disk, and regularly or when space is short free some; called every second."""
        self._backpressure.update()  # a server may have gone offline
        disk = self._log.disk
        space = self._measure()
        if self.shortage is None:
            disk.keep_reserve(space)
            if time.monotonic() < self._next_truncation:
                return
        self._next_truncation = time.monotonic() + TRUNCATE_SECONDS
        for step in (self._store_cursors, self._truncate, self._forget_credentials, self._reclaim):
            try:
                await step()
            except LogFull as error:
                # The next step can use the reserve.
                freed = disk.free_reserve()
                logger.warning("disk_full", step=step.__name__, error=str(error), reserve_freed=freed)
            except Unavailable as error:
                logger.warning("housekeeping_failed", step=step.__name__, error=str(error))

    async def _store_cursors(self) -> None:
        """Store the servers' cursors, in case a server is lost while this dispatcher is down."""
        known = {server.id: server.forwarder.acked for server in self._registry if server.forwarder}
        fresh = [(server, cursor) for server, cursor in known.items() if self._stored.get(server) != cursor]
        if fresh:
            await self._log.submit(lambda transaction: servers.put_cursors(transaction, fresh), changes=False)
            self._stored.update(fresh)

    async def _truncate(self) -> None:
        """Delete records that every server has committed."""
        expired = await self._log.reading(retention.has_expired, self._log.now())
        upto = min([one.forwarder.acked if one.forwarder else 0 for one in self._registry], default=0)
        if not self._backup_gate.active and (upto > self._truncated or expired):
            ids_before = self._log.steady() - int(IDEMPOTENCE_SECONDS * 1e6)
            await self._log.truncate(upto, ids_before)
            self._truncated = upto

    async def _forget_credentials(self) -> None:
        """Delete credentials whose last subscription has ended."""
        if time.monotonic() < self._next_forgetting:
            return
        self._next_forgetting = time.monotonic() + CREDENTIALS_SECONDS
        before = self._log.now() - int(CREDENTIALS_SECONDS * 1e6)
        idle = await self._log.scanning(directory.unused_credentials, before)
        if idle:
            await self._log.submit(
                lambda transaction: directory.delete_credentials(transaction.connection, idle, before)
            )

    async def _reclaim(self) -> None:
        """Return free pages to the file system, all of them when space is short."""
        disk, short = self._log.disk, self.shortage is not None
        space = self._log.measure_space()
        slack = disk.slack(space)
        if space.reusable > slack or (short and space.wal > 0):
            await self._log.reclaim(slack, 0.5 if short else 0.1)
