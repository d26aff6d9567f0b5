"""Takes what dispatchers send: store requests, frames of their logs, pages of replays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from edn import protocol
from edn.runtime.ownership import owned
from edn_server.ingest.apply_frame import Applied, ApplyFrame
from edn_server.ingest.control_records import Follow
from edn_server.ingest.replay import ApplyReplay
from edn_server.storage.database import SqliteStore
from edn_server.storage.outbox import Event
from edn_server.subscriptions.registry import SubscriptionRegistry
from edn_server.subscriptions.store import StoreVersions, prepare

#: called in the writer's thread with what was committed, and the payloads by place
OnApplied = Callable[[Applied, dict[int, Event]], None]


@owned("loop")
class Intake:
    """Lives on the event loop; the work is done in the writer's thread."""

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
        """`batch` is the newest in the outbox; `ask_consent` gets (tenant, URL) of new sinks."""
        self._store = store
        self._registry = registry
        self._epoch = epoch
        self._check_room = check_room
        self._ask_consent = ask_consent
        self._on_applied = on_applied
        #: the newest batch of payloads
        self.batch = batch

    def take_batch(self) -> int:
        """Return a batch that nothing else uses."""
        self.batch += 1
        return self.batch

    async def store(self, request: protocol.Store) -> protocol.Stored:
        """Store versions of subscriptions, inactive."""
        await self._check_room()
        prepared = await asyncio.to_thread(prepare, request)
        if request.asking:
            await self._ask_consent((item.tenant, item.url) for item in request.items)
        return await self._store.committed(StoreVersions(self._registry, self._epoch, prepared))

    async def apply(self, frame: protocol.Frame) -> Applied:
        """Apply a frame of a log."""
        await self._check_room()
        job = ApplyFrame(self._registry, self._epoch, self.take_batch(), frame, self._on_applied)
        return await self._store.committed(job)

    async def replay(self, page: protocol.ReplayPage) -> protocol.ReplayAck:
        """Apply a page of a subscription's history."""
        await self._check_room()
        job = ApplyReplay(self._registry, self.take_batch(), page, self._on_applied)
        return await self._store.committed(job)

    async def follow(self, url: str, answer: protocol.Registered) -> None:
        """Follow the log that the dispatcher at this URL named."""
        await self._store.committed(Follow(self._registry, url, answer.log, answer.incarnation))
