"""Keeps the routing table up to date with the servers' subscriptions.

The table is widened before a subscription becomes active. Later the server's summary replaces these single
rectangles. It is fetched when the server registers, when no subscription was added for a while, and when
subscriptions ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import structlog

from dispatcher.routing.table import RoutingTable
from dispatcher.servers.client import ServerClient
from dispatcher.servers.pipeline import PipelineCounters
from dispatcher.servers.placement import Placer
from dispatcher.servers.registry import HEARTBEAT_SECONDS, Server, ServerRegistry
from edn import protocol
from edn.model.rect import Rects
from edn.runtime import clock, memory
from edn.runtime.ownership import owned
from edn.runtime.tasks import Tasks
from edn.summary import Summary
from edn.summary.selection import selected

logger = structlog.get_logger()

#: seconds without new subscriptions after which a server's summary is fetched
_QUIET_SECONDS = 2.0
#: seconds after which no summary contains a deleted topic
_RELEASE_SECONDS = 15.0


@owned("loop")
@dataclass(eq=False)
class Summaries:
    _table: RoutingTable
    _registry: ServerRegistry
    _placer: Placer
    _counters: PipelineCounters
    _client: ServerClient
    _tasks: Tasks
    #: number of attributes of each summary that routing uses; 0 is all
    _attributes: int = 0
    #: when the last topic was deleted; 0 after its memory was released
    _topic_deleted: float = field(default=0.0, init=False)

    def report_change(self) -> None:
        """Report that subscriptions have begun or ended, to those who watch what is routed."""
        self._table.on_change()

    def widen(self, server: str, topic: int, rects: Iterable[Rects], stored: protocol.Stored) -> None:
        """Route events inside rectangles that a server has just stored to that server."""
        by_width: dict[int, list[Rects]] = {}
        for each in rects:
            by_width.setdefault(each.lo.shape[1], []).append(each)
        found = self._registry.get(server)
        for same in by_width.values():
            lo, hi = np.concatenate([each.lo for each in same]), np.concatenate([each.hi for each in same])
            self._table.widen(server, topic, lo, hi, epoch=stored.epoch, seq=stored.seq)
            if found is not None:
                found.widened += len(lo)
                found.widened_at = time.monotonic()

    def forget_topic(self, topic: int) -> None:
        """Forget a deleted topic, except for its rectangles, which the next summaries remove."""
        self._placer.forget_topic(topic)
        self._table.forget_topic(topic)
        self._counters.forget_topic(topic)
        self._topic_deleted = time.monotonic()

    def distrust(self, server: str) -> None:
        """Route everything to a server whose summary may lack a subscription, until the next summary."""
        found = self._registry.get(server)
        self._table.remove(server)
        self._table.add(server)
        if found is not None:
            found.distrusted += 1
            found.summary = None
            if found.forwarder is not None:
                self.request(found)

    async def refresh(self) -> None:
        """Fetch summaries to replace single rectangles, which no precision reduces; called every second.

        A summary is due when no subscription was added for a while, or as many as the server had. So a
        million subscriptions created one by one cost about twenty summaries. Memory is released some time
        after the last topic was deleted, when its rectangles are gone, too.
        """
        now = time.monotonic()
        for server in self._registry.present():
            quiet = now - server.widened_at > _QUIET_SECONDS
            if server.widened and (quiet or server.widened > max(2000, server.subscriptions // 2)):
                self.request(server)
        if self._topic_deleted and now - self._topic_deleted > _RELEASE_SECONDS:
            self._topic_deleted = 0.0
            await asyncio.to_thread(memory.release)

    def request(self, server: Server) -> None:
        """Fetch a summary in the background, one at a time and at most one per second and server."""
        if not server.fetching:
            server.fetching = True
            self._tasks.spawn(self._fetch(server), f"summary of {server.id}")

    async def _fetch(self, server: Server) -> None:
        try:
            for pause in (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0):
                await asyncio.sleep(pause)
                server.widened = 0  # the summary may lack rectangles that are added from now on
                distrusted = server.distrusted
                try:
                    snapshot = await self._client.summary(server.url)
                    summaries, routed = await asyncio.to_thread(self._decode, snapshot)
                except Exception as error:  # see `ServerClient.summary`
                    reason = str(error) or type(error).__name__
                    logger.warning("summary_failed", server=server.id, reason=reason)
                    server.widened += 1
                    continue
                if server.distrusted != distrusted:
                    continue
                if await self._table.accept_in_slices(server.id, snapshot.epoch, snapshot.seq, routed):
                    if server.distrusted != distrusted:
                        continue
                    server.summary = (snapshot.epoch, snapshot.seq)
                    server.summary_at = clock.monotonic()
                    await self._placer.learn(server.id, summaries)
                    break
            await asyncio.sleep(HEARTBEAT_SECONDS)
        finally:
            server.fetching = False

    def _decode(self, snapshot: protocol.SummarySnapshot) -> tuple[dict[int, Summary], dict[int, Summary]]:
        """Return the summaries of a snapshot, and their parts that routing uses. Runs in a thread."""
        whole = {topic: Summary.from_bytes(data) for topic, data in snapshot.topics.items()}
        if not self._attributes:
            return whole, whole
        return whole, {topic: selected(summary, self._attributes) for topic, summary in whole.items()}
