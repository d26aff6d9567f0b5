"""Tells publishers whether anybody listens to what they advertise, from the routing table and the report.

The routing table is widened before a subscription is answered with 201, and never too narrow. So an
advertisement that no rectangle of the table intersects is not wanted, and one that a widening intersects is.
A summary stays too wide for a while after subscriptions have ended: inside it, and for a server that gets all
events, the number of stored subscriptions that overlap the advertisement decides. It never counts too few.
So "not wanted" is always right, and an advertisement is wanted before the first subscriber knows that it has
subscribed.

Subscriptions that another dispatcher has accepted widen the table when this one learns of them; a request for
an advertisement waits for that, a watcher hears of it by the database's notification.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

from dispatcher.advertisements.reach import Reach
from dispatcher.routing.table import RoutingTable
from edn.arrays import Floats
from edn.model.rect import Rects
from edn.runtime.ownership import owned

#: seconds that a watcher waits after a change that did not concern it
GATHER_SECONDS = 0.05
#: seconds after which a watcher looks again: subscriptions, or the advertisement, may have ended
LOOK_SECONDS = 5.0


@owned("loop")
class Wanted:
    def __init__(self, table: RoutingTable, reach: Reach) -> None:
        self._table = table
        self._reach = reach
        self._waiting: set[asyncio.Event] = set()
        table.on_change = self._wake

    async def is_wanted(self, topic: int, key: str, rects: Rects) -> bool:
        """Tell whether a subscription may match events of an advertisement, given by its key."""
        seen = self._look(topic, rects)
        return seen if seen is not None else await self._reach.overlapping(topic, key) > 0

    def _look(self, topic: int, rects: Rects) -> bool | None:
        """Look at the table: True for a widening, False if nothing is routed, None if only a summary is."""
        table, decided = self._table, True
        for server in table.servers:
            decided = decided and not table.gets_everything(server)
            for reason, lo, hi in table.rectangles(server, topic):
                if _meet(lo, hi, rects):
                    if reason == "widening":
                        return True
                    decided = False
        return False if decided else None

    async def watch(self, ask: Callable[[], Awaitable[bool | None]]) -> AsyncGenerator[bool]:
        """Yield the state now and at each change; `ask` returns it, or None at the end."""
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            last: bool | None = None
            while True:
                changed.clear()
                state = await ask()
                if state is None:
                    return
                if state is last:
                    # Many subscriptions may change at once, and none of them concerns this advertisement.
                    await asyncio.sleep(GATHER_SECONDS)
                else:
                    last = state
                    yield state
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), LOOK_SECONDS)
        finally:
            self._waiting.discard(changed)

    def wake(self) -> None:
        """Let watchers ask again, after a change of advertisements."""
        self._wake()

    def _wake(self) -> None:
        for waiting in self._waiting:
            waiting.set()


def _meet(lo: Floats, hi: Floats, rects: Rects) -> bool:
    """Tell whether some rectangle intersects another one; missing columns are unconstrained."""
    width = min(lo.shape[1], rects.width)
    return any(
        bool(((lo[:, :width] <= high) & (low <= hi[:, :width])).all(axis=1).any())
        for low, high in zip(rects.lo[:, :width], rects.hi[:, :width], strict=True)
    )
