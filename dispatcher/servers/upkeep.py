"""Keeps room for the log: measures the disk, truncates the log, returns free pages. Event loop only."""

from __future__ import annotations

import time

import structlog

from dispatcher.servers.backup_gate import BackupGate
from dispatcher.servers.limits import Backpressure
from dispatcher.servers.registry import ServerRegistry
from dispatcher.store import retention, servers
from dispatcher.store.event_log import Log, LogFull
from edn.errors import Unavailable
from edn.runtime.disk import Space

logger = structlog.get_logger()

#: interval between two truncations of the log
TRUNCATE_SECONDS = 5.0
#: how long an event id that a publisher chose is known
IDEMPOTENCE_SECONDS = 86_400.0


class Upkeep:
    def __init__(
        self, log: Log, members: ServerRegistry, backpressure: Backpressure, backup_gate: BackupGate
    ) -> None:
        self._log = log
        self._members = members
        self._backpressure = backpressure
        self._backup_gate = backup_gate
        #: too little room for the log: no events are accepted
        self.shortage = log.disk.shortage(log.measure_space())
        # Readiness says so at once, not a second later.
        log.on_full = self._measure
        #: bytes accepted since the disk was last measured
        self._unmeasured = 0
        self._truncated, self._next_truncation = 0, 0.0
        #: server → cursor that was last written down
        self._noted: dict[str, int] = {}

    def count(self, size: int) -> None:
        """Count bytes that will be written; called for every request, so mostly one addition.

        A second's traffic can be larger than the watermark, so the disk is measured by traffic, too.
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
        """Measure the disk and, from time to time or when room is short, make room; called every second."""
        self._backpressure.update()  # a server may have gone offline meanwhile
        disk = self._log.disk
        space = self._measure()
        if self.shortage is None:
            disk.keep_reserve(space)
            if time.monotonic() < self._next_truncation:
                return
        self._next_truncation = time.monotonic() + TRUNCATE_SECONDS
        for step in (self._note_cursors, self._truncate, self._reclaim):
            try:
                await step()
            except LogFull as error:
                # The next step, or the next second, has the reserve to work with.
                freed = disk.free_reserve()
                logger.warning("disk_full", step=step.__name__, error=str(error), reserve_freed=freed)
            except Unavailable as error:
                logger.warning("housekeeping_failed", step=step.__name__, error=str(error))

    async def _note_cursors(self) -> None:
        """For the case that a server is lost while this dispatcher does not run."""
        known = {member.id: member.forwarder.acked for member in self._members if member.forwarder}
        fresh = [(server, cursor) for server, cursor in known.items() if self._noted.get(server) != cursor]
        if fresh:
            await self._log.submit(lambda transaction: servers.put_cursors(transaction, fresh))
            self._noted.update(fresh)

    async def _truncate(self) -> None:
        """Delete records that every server has."""
        expired = await self._log.reading(retention.has_expired, self._log.now())
        upto = min([member.forwarder.acked if member.forwarder else 0 for member in self._members], default=0)
        if not self._backup_gate.active and (upto > self._truncated or expired):
            ids_before = self._log.steady() - int(IDEMPOTENCE_SECONDS * 1e6)
            await self._log.truncate(upto, ids_before)
            self._truncated = upto

    async def _reclaim(self) -> None:
        """Return free pages to the disk, all of them when it is short."""
        disk, short = self._log.disk, self.shortage is not None
        space = self._log.measure_space()
        slack = disk.slack(space)
        if space.reusable > slack or (short and space.wal > 0):
            await self._log.reclaim(slack, 0.5 if short else 0.1)
