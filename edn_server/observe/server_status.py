"""Status of the whole server: readiness, figures, summary, explanations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from edn import protocol
from edn.runtime.disk import Shortage
from edn.runtime.ownership import owned
from edn.summary import Summary
from edn_server.delivery.notifier import Counters
from edn_server.observe.explain import candidates, explain
from edn_server.storage.interface import Connection
from edn_server.storage.store import Store
from edn_server.storage.writer import Call
from edn_server.subscriptions.registry import SubscriptionRegistry
from edn_server.subscriptions.view import RegistryView


@owned("loop")
@dataclass(slots=True)
class ServerStatus:
    store: Store
    registry: SubscriptionRegistry
    view: RegistryView
    counters: Counters
    _: KW_ONLY
    id: str
    epoch: int
    shortage: Callable[[], Shortage | None]
    is_registered: Callable[[], bool]

    def not_ready(self) -> str | None:
        """Returns why this server is not ready; None if it is."""
        if self.store.unavailable is not None:
            return self.store.unavailable
        shortage = self.shortage()
        if shortage is not None:
            return str(shortage)
        if not self.is_registered():
            return "not registered with the dispatcher"
        waiting = self.view.unjoined_logs()
        return f"the join record of log {waiting[0]} is not applied yet" if waiting else None

    async def stats(self) -> dict[str, Any]:
        """Returns the figures of `/internal/stats`."""
        found = await self.store.committed(Call(self._figures))
        counters = self.counters
        return {
            "id": self.id,
            "epoch": self.epoch,
            **found,
            **{
                name: getattr(counters, name)
                for name in ("backlog", "delivered", "failed", "dropped", "dead")
            },
        }

    def _figures(self, _: Connection) -> dict[str, Any]:
        registry = self.registry
        versions: dict[int, int] = dict.fromkeys(registry.topics, 0)
        for version in registry.versions.values():
            versions[version.topic] += 1
        return {
            "subscriptions": len(registry.numbers),
            "seq": registry.seq,
            "cursors": self.view.cursors(),
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
            topics = {uid: topic.rects() for uid, topic in self.registry.topics.items() if topic.rectangles}
            self.registry.shrinkable = 0
            return self.registry.seq, topics

        seq, rects = await self.store.committed(Call(read))

        def build() -> dict[int, bytes]:
            return {uid: Summary.build(lo, hi).to_bytes() for uid, (lo, hi) in rects.items()}

        return protocol.SummarySnapshot(epoch=self.epoch, seq=seq, topics=await asyncio.to_thread(build))

    async def explain(self, question: protocol.Explain) -> protocol.Explained:
        """Explains which subscriptions an event would match."""
        found = await self.store.committed(Call(lambda _: candidates(self.registry, question)))
        return await asyncio.to_thread(explain, found, question)
