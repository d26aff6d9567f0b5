"""Answers the dispatcher's requests during a migration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass

from edn import protocol
from edn.runtime.ownership import owned
from edn_server.handover import departures, progress
from edn_server.handover.arrivals import FinishArrivals, StoreBuffered
from edn_server.handover.departures import ReportDepartures
from edn_server.ingest.replay import OnApplied
from edn_server.sequences.settling import FedRows
from edn_server.storage.store import Store
from edn_server.storage.writer import Call
from edn_server.subscriptions.registry import SubscriptionRegistry


@owned("loop")
@dataclass(slots=True)
class Handover:
    store: Store
    registry: SubscriptionRegistry
    _: KW_ONLY
    take_frame_id: Callable[[], int]
    check_room: Callable[[], Awaitable[None]]
    #: reduces the backlog
    subtract: Callable[[int], None]
    on_applied: OnApplied
    #: called in the writer's thread with complete sequences
    on_fed: Callable[[FedRows], None]

    async def report_departures(self, request: protocol.Departures) -> protocol.Departed:
        """Reports the remaining work of departed subscriptions, and drops buffers that were handed over."""
        answer, dropped = await self.store.committed(ReportDepartures(self.registry, request))
        self.subtract(dropped)
        return answer

    async def read_buffered(self, question: protocol.BufferedQuery) -> protocol.BufferedPage:
        """Returns the next buffered notifications of a departed subscription."""
        return await self.store.committed(Call(lambda db: departures.buffered_page(db, question)))

    async def store_buffered(self, page: protocol.BufferedPage) -> protocol.Accepted:
        """Stores notifications that the old server buffered."""
        await self.check_room()
        job = StoreBuffered(self.registry, self.take_frame_id(), page, self.on_applied)
        return await self.store.committed(job)

    async def finish_arrivals(self, request: protocol.Arrivals) -> protocol.Accepted:
        """Releases the rows of subscriptions whose old server has nothing left to deliver."""
        job = FinishArrivals(self.registry, request, self.on_applied, self.take_frame_id, self.on_fed)
        return await self.store.committed(job)

    async def read_progress(self, question: protocol.ProgressQuery) -> protocol.ProgressPage:
        """Returns the next rows of the monitor of a departed sequence."""
        return await self.store.committed(Call(lambda db: progress.progress_page(db, question)))

    async def store_progress(self, page: protocol.ProgressPage) -> protocol.Accepted:
        """Stores rows of the monitor that a sequence had on its old server."""
        await self.check_room()
        job = progress.StoreProgress(self.registry, self.take_frame_id(), page, self.on_fed)
        return await self.store.committed(job)
