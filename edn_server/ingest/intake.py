"""Receives requests of dispatchers: stores, frames, replays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import KW_ONLY, dataclass

from edn import protocol
from edn.runtime.ownership import owned
from edn_server.ingest.apply_frame import Applied, ApplyFrame
from edn_server.ingest.control_records import FollowLog
from edn_server.ingest.replay import ApplyReplay, OnApplied
from edn_server.storage.store import Store
from edn_server.subscriptions.registry import SubscriptionRegistry
from edn_server.subscriptions.store import StoreVersions, bind_filters


@owned("loop")
@dataclass(slots=True)
class Intake:
    """Passes requests to the writer's thread."""

    store: Store
    registry: SubscriptionRegistry
    _: KW_ONLY
    epoch: int
    #: the newest frame id
    frame_id: int
    check_room: Callable[[], Awaitable[None]]
    #: called with (tenant, URL) of new sinks
    ask_consent: Callable[[Iterable[tuple[str, str]]], Awaitable[None]]
    on_applied: OnApplied

    def take_frame_id(self) -> int:
        """Returns an unused frame id."""
        self.frame_id += 1
        return self.frame_id

    async def store_versions(self, request: protocol.Store) -> protocol.Stored:
        """Stores versions of subscriptions, inactive."""
        await self.check_room()
        rects = await asyncio.to_thread(bind_filters, request)
        if request.asking:
            await self.ask_consent((item.tenant, item.url) for item in request.items)
        return await self.store.committed(StoreVersions(self.registry, self.epoch, request, rects))

    async def apply(self, frame: protocol.Frame) -> Applied:
        """Applies a frame of a log."""
        await self.check_room()
        job = ApplyFrame(self.registry, self.epoch, self.take_frame_id(), frame, self.on_applied)
        return await self.store.committed(job)

    async def replay(self, page: protocol.ReplayPage) -> protocol.ReplayAck:
        """Applies a page of a replay."""
        await self.check_room()
        job = ApplyReplay(self.registry, self.take_frame_id(), page, self.on_applied)
        return await self.store.committed(job)

    async def follow(self, answer: protocol.Registered) -> None:
        """Follows the log of a dispatcher."""
        job = FollowLog(self.registry, answer.log, answer.incarnation, answer.shared)
        await self.store.committed(job)
