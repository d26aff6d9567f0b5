"""Status of the whole server: readiness, figures, summary, explanations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from edn import protocol
from edn.runtime.disk import Shortage
from edn.runtime.ownership import owned
from edn.summary import Summary
from edn_server.delivery.notifier import Counters
from edn_server.observe.explain import candidates, explain
from edn_server.storage.database import SqliteStore
from edn_server.storage.interface import Connection
from edn_server.storage.writer import Call
from edn_server.subscriptions.registry import SubscriptionRegistry
from edn_server.subscriptions.view import RegistryView


@owned("loop")
class ServerStatus:
    def __init__(
        self,
        store: SqliteStore,
        registry: SubscriptionRegistry,
        view: RegistryView,
        counters: Counters,
        *,
        id: str,
        epoch: int,
        shortage: Callable[[], Shortage | None],
        is_registered: Callable[[], bool],
    ) -> None:
        self._store = store
        self._registry = registry
        self._view = view
        self._counters = counters
        self._id = id
        self._epoch = epoch
        self._shortage = shortage
        self._is_registered = is_registered

    def not_ready(self) -> str | None:
        """Returns why this server is not ready; None if it is."""
        shortage = self._shortage()
        if shortage is not None:
            return str(shortage)
        if not self._is_registered():
            return "not registered with the dispatcher"
        waiting = self._view.unjoined_logs()
        return f"the join record of log {waiting[0]} is not applied yet" if waiting else None

    async def stats(self) -> dict[str, Any]:
        """Returns the figures of `/internal/stats`."""
        found = await self._store.committed(Call(self._figures))
        counters = self._counters
        return {
            "id": self._id,
            "epoch": self._epoch,
            **found,
            **{
                name: getattr(counters, name)
                for name in ("backlog", "delivered", "failed", "dropped", "dead")
            },
        }

    def _figures(self, _: Connection) -> dict[str, Any]:
        registry = self._registry
        versions: dict[int, int] = dict.fromkeys(registry.topics, 0)
        for version in registry.versions.values():
            versions[version.topic] += 1
        return {
            "subscriptions": len(registry.numbers),
            "seq": registry.seq,
            "cursors": self._view.cursors(),
            "topics": [
                {
                    "uid": uid,
                    "name": topic.name,
                    "versions": versions[uid],
                    "rectangles": topic.rectangles,
                    "maximal": topic.maximal,
                }
                for uid, topic in registry.topics.items()
            ],
        }

    async def summary(self) -> protocol.SummarySnapshot:
        """Returns a consistent summary of all topics, read in the writer's thread and built in another."""

        def read(_: Connection) -> tuple[int, dict[int, Any]]:
            topics = {uid: topic.rects() for uid, topic in self._registry.topics.items() if topic.rectangles}
            self._registry.shrinkable = 0
            return self._registry.seq, topics

        seq, rects = await self._store.committed(Call(read))

        def build() -> dict[int, bytes]:
            return {uid: Summary.build(lo, hi).to_bytes() for uid, (lo, hi) in rects.items()}

        return protocol.SummarySnapshot(epoch=self._epoch, seq=seq, topics=await asyncio.to_thread(build))

    async def explain(self, question: protocol.Explain) -> protocol.Explained:
        """Explains which subscriptions an event would match."""
        found = await self._store.committed(Call(lambda _: candidates(self._registry, question)))
        return await asyncio.to_thread(explain, found, question)
