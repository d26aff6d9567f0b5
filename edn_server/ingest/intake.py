"""Receives requests of dispatchers: stores, frames, replays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from edn import protocol
from edn.runtime.ownership import owned
from edn_server.ingest.apply_frame import Applied, ApplyFrame
from edn_server.ingest.control_records import FollowLog
from edn_server.ingest.replay import ApplyReplay, OnApplied
from edn_server.storage.database import SqliteStore
from edn_server.subscriptions.registry import SubscriptionRegistry
from edn_server.subscriptions.store import StoreVersions, bind_filters


@owned("loop")
class Intake:
    """Passes requests to the writer's thread."""

    def __init__(
        self,
        store: SqliteStore,
        registry: SubscriptionRegistry,
        *,
        epoch: int,
        batch: int,
        check_room: Callable[[], Awaitable[None]],
        ask_consent: Callable[[Iterable[tuple[str, str]]], Awaitable[None]],
        on_applied: OnApplied,
    ) -> None:
        """`batch`: the newest in the outbox; `ask_consent` is called with (tenant, URL) of new sinks."""
        self._store = store
        self._registry = registry
        self._epoch = epoch
        self._check_room = check_room
        self._ask_consent = ask_consent
        self._on_applied = on_applied
        #: the newest batch of payloads
        self.batch = batch

    def take_batch(self) -> int:
        """Returns an unused batch."""
        self.batch += 1
        return self.batch

    async def store(self, request: protocol.Store) -> protocol.Stored:
        """Stores versions of subscriptions, inactive."""
        await self._check_room()
        rects = await asyncio.to_thread(bind_filters, request)
        if request.asking:
            await self._ask_consent((item.tenant, item.url) for item in request.items)
        return await self._store.committed(StoreVersions(self._registry, self._epoch, request, rects))

    async def apply(self, frame: protocol.Frame) -> Applied:
        """Applies a frame of a log."""
        await self._check_room()
        job = ApplyFrame(self._registry, self._epoch, self.take_batch(), frame, self._on_applied)
        return await self._store.committed(job)

    async def replay(self, page: protocol.ReplayPage) -> protocol.ReplayAck:
        """Applies a page of a replay."""
        await self._check_room()
        job = ApplyReplay(self._registry, self.take_batch(), page, self._on_applied)
        return await self._store.committed(job)

    async def follow(self, url: str, answer: protocol.Registered) -> None:
        """Follows the log of the dispatcher at this URL."""
        await self._store.committed(FollowLog(self._registry, url, answer.log, answer.incarnation))
