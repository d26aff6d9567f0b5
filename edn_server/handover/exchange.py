"""Answers the dispatcher's questions while a subscription moves between servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from edn import protocol
from edn.runtime.ownership import owned
from edn_server.handover import departures
from edn_server.handover.arrivals import Arrive, OnApplied, TakeKept, TakeTold
from edn_server.handover.departures import Depart
from edn_server.storage.database import SqliteStore
from edn_server.storage.writer import Call
from edn_server.subscriptions.registry import SubscriptionRegistry


@owned("loop")
class Handover:
    """Lives on the event loop; the work is done in the writer's thread."""

    def __init__(
        self,
        store: SqliteStore,
        registry: SubscriptionRegistry,
        *,
        take_batch: Callable[[], int],
        check_room: Callable[[], Awaitable[None]],
        subtract: Callable[[int], None],
        on_applied: OnApplied,
    ) -> None:
        """`subtract` counts notifications that no longer wait."""
        self._store = store
        self._registry = registry
        self._take_batch = take_batch
        self._check_room = check_room
        self._subtract = subtract
        self._on_applied = on_applied

    async def departures(self, request: protocol.Departures) -> protocol.Departed:
        """Report the remaining work of departed subscriptions, and drop buffers that were handed over."""
        answer, dropped = await self._store.committed(Depart(self._registry, request))
        self._subtract(dropped)
        return answer

    async def kept(self, question: protocol.BufferedQuery) -> protocol.BufferedPage:
        """Return the next buffered rows of a departed subscription."""
        return await self._store.committed(Call(lambda db: departures.kept(db, question)))

    async def told(self, question: protocol.DeliveredIdsQuery) -> protocol.DeliveredIds:
        """Return the next events that departed subscriptions were notified of and that may come again."""
        return await self._store.committed(Call(lambda db: departures.told(db, question)))

    async def take_kept(self, page: protocol.BufferedPage) -> protocol.Accepted:
        """Store rows that another server buffered."""
        await self._check_room()
        return await self._store.committed(
            TakeKept(self._registry, self._take_batch(), page, self._on_applied)
        )

    async def take_told(self, page: protocol.DeliveredIds) -> protocol.Accepted:
        """Store which events another server notified arriving subscriptions of."""
        return protocol.Accepted(
            await self._store.committed(TakeTold(self._registry, page, self._on_applied))
        )

    async def arrivals(self, request: protocol.Arrivals) -> protocol.Accepted:
        """Release the rows of subscriptions whose old server has nothing left."""
        return await self._store.committed(Arrive(self._registry, request, self._on_applied))
