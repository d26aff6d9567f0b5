"""Keeps the routing table in line with what the servers host.

The table is widened before a subscription counts. A server's summary takes the place of single rectangles
later: it is fetched when the server registers, when subscriptions have stopped coming, and when it can
shrink. Event loop only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import numpy as np
import structlog

from dispatcher.routing.table import RoutingTable
from dispatcher.servers.client import ServerClient
from dispatcher.servers.counters import PipelineCounters
from dispatcher.servers.placement import Placing
from dispatcher.servers.registry import HEARTBEAT_SECONDS, Server, ServerRegistry
from edn import protocol
from edn.model.rect import Rects
from edn.runtime import memory
from edn.runtime.tasks import Tasks
from edn.summary import Summary
from edn.summary.selection import selected

logger = structlog.get_logger()

#: a server without new subscriptions for so long is asked for a summary of the last ones
SETTLE_SECONDS = 2.0
#: seconds after which the summaries lack a deleted topic
_RELEASE_SECONDS = 15.0


class Summaries:
    def __init__(
        self,
        table: RoutingTable,
        members: ServerRegistry,
        placing: Placing,
        counters: PipelineCounters,
        calls: ServerClient,
        tasks: Tasks,
        attributes: int = 0,
    ) -> None:
        """`attributes`: how many attributes of each summary routing uses; 0 is all."""
        self._table = table
        self._members = members
        self._placing = placing
        self._counters = counters
        self._calls = calls
        self._tasks = tasks
        self._attributes = attributes
        #: when the last topic was deleted; 0 once its memory was released
        self._forgotten = 0.0

    def widen(self, server: str, topic: int, rects: Iterable[Rects], stored: protocol.Stored) -> None:
        """Route to a server, from now on, events inside the rectangles that it has just stored."""
        by_width: dict[int, list[Rects]] = {}
        for each in rects:
            by_width.setdefault(each.lo.shape[1], []).append(each)
        member = self._members.get(server)
        for same in by_width.values():
            lo, hi = np.concatenate([each.lo for each in same]), np.concatenate([each.hi for each in same])
            self._table.widen(server, topic, lo, hi, epoch=stored.epoch, seq=stored.seq)
            if member is not None:
                member.widened += len(lo)
                member.widened_at = time.monotonic()

    def forget_topic(self, topic: int) -> None:
        """Forget a deleted topic, except for its rectangles: these go with the next summaries."""
        self._placing.forget_topic(topic)
        self._table.forget_topic(topic)
        self._counters.forget_topic(topic)
        self._forgotten = time.monotonic()

    def distrust(self, server: str) -> None:
        """Route everything to a server whose summary may lack a subscription, until there is a new one."""
        member = self._members.get(server)
        self._table.remove(server)
        self._table.add(server)
        if member is not None:
            member.asked += 1
            member.summary = None
            if member.forwarder is not None:
                self.ask(member)

    async def settle(self) -> None:
        """Replace single rectangles, which no precision makes fewer, by summaries.

        A server is asked when subscriptions have stopped coming for a while, or have doubled its own. A
        million that come one by one thus cost some twenty summaries. Some time after the last topic was
        deleted, when its rectangles have gone, too, their memory is released.
        """
        now = time.monotonic()
        for member in self._members.present():
            quiet = now - member.widened_at > SETTLE_SECONDS
            if member.widened and (quiet or member.widened > max(2000, member.subscriptions // 2)):
                self.ask(member)
        if self._forgotten and now - self._forgotten > _RELEASE_SECONDS:
            self._forgotten = 0.0
            await asyncio.to_thread(memory.release)

    def ask(self, member: Server) -> None:
        """Fetch a summary in the background: one at a time per server, and not in a busy loop."""
        if not member.asking:
            member.asking = True
            self._tasks.spawn(self._ask(member), f"summary of {member.id}")

    async def _ask(self, member: Server) -> None:
        try:
            for pause in (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0):
                await asyncio.sleep(pause)
                member.widened = 0  # rectangles that come from here on may not be in it
                asked = member.asked
                try:
                    snapshot = await self._calls.summary(member.url)
                    summaries = await asyncio.to_thread(_summaries, snapshot)
                    routed = await self._selected(summaries)
                except Exception as error:  # not only the client's own: see `ServerClient`
                    reason = str(error) or type(error).__name__
                    logger.warning("summary_failed", server=member.id, reason=reason)
                    member.widened += 1
                    continue
                if member.asked != asked:
                    continue  # it was distrusted meanwhile
                if await self._table.accept_in_slices(member.id, snapshot.epoch, snapshot.seq, routed):
                    if member.asked != asked:
                        continue
                    member.summary = (snapshot.epoch, snapshot.seq)
                    await self._placing.summarised_in_slices(member.id, summaries)
                    break
            await asyncio.sleep(HEARTBEAT_SECONDS)
        finally:
            member.asking = False

    async def _selected(self, summaries: dict[int, Summary]) -> dict[int, Summary]:
        """Return the part of summaries that routing uses: all, or only some attributes."""
        count = self._attributes
        if not count:
            return summaries
        # Another hierarchy is built, which takes too long for the event loop.
        fresh = await asyncio.to_thread(lambda: [selected(summary, count) for summary in summaries.values()])
        return dict(zip(summaries, fresh, strict=True))


def _summaries(snapshot: protocol.SummarySnapshot) -> dict[int, Summary]:
    return {topic: Summary.from_bytes(data) for topic, data in snapshot.topics.items()}
