"""Slots for attempts, shared fairly between tenants and between the addresses of a tenant.

Theory of operation
-------------------
An attempt mostly waits for a name server, a host or an answer. It costs a socket and a sleeping task, so
there are many slots. Fairness follows from counts; there are no timers.

Between tenants: a tenant holds at most `bound` slots. A tenant that holds `share` slots or more leaves the
last `reserve` slots free. So a tenant with few slots starts at once, however many attempts of another tenant
hang. If slots are scarce, the next free slot goes to the tenant with the fewest; ties take turns.

Within a tenant, by the standing of an address:

    quick      the last attempt succeeded within a second
    slow       the last attempt succeeded, and took longer
    new        no attempt since this server started
    failing    the last attempt failed

Each standing but the first is limited to a part of the tenant's bound (`PARTS`); some slots remain for quick
addresses alone. Waiting attempts of one standing take turns by host: a dead host with hundreds of addresses
delays another host by one turn.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from edn.runtime.ownership import owned

Standing = Literal["quick", "slow", "new", "failing"]

#: the part of a tenant's bound that attempts of each standing may hold
PARTS: dict[Standing, float] = {"quick": 1.0, "slow": 1 / 4, "new": 3 / 8, "failing": 1 / 4}

#: tenants that are remembered although they hold and want no slot
IDLE_TENANTS = 1000


class _Turns:
    """Waiting attempts, one queue per host; hosts take turns."""

    def __init__(self) -> None:
        self._by_host: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._by_host)

    def add(self, host: str, turn: asyncio.Future[None]) -> None:
        self._by_host.setdefault(host, deque()).append(turn)

    def remove(self, host: str, turn: asyncio.Future[None]) -> None:
        queue = self._by_host.get(host)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._by_host[host]

    def pop(self) -> asyncio.Future[None]:
        """Remove the next attempt; its host goes to the end of the line."""
        host, queue = next(iter(self._by_host.items()))
        turn = queue.popleft()
        if queue:
            self._by_host.move_to_end(host)
        else:
            del self._by_host[host]
        return turn


class _Tenant:
    def __init__(self) -> None:
        self.total = 0
        self.running: dict[Standing, int] = dict.fromkeys(PARTS, 0)
        self.waiting: dict[Standing, _Turns] = {standing: _Turns() for standing in PARTS}

    @property
    def waits(self) -> bool:
        return any(self.waiting.values())


@owned("loop")
class Slots:
    def __init__(self, total: int, bound: int | None = None) -> None:
        """`bound`: slots of one tenant; half of all by default."""
        self.free = total
        self.bound = bound if bound is not None else max(1, total // 2)
        self.share = max(1, total // 16)
        self.reserve = total // 4
        self._limits = {standing: max(1, int(self.bound * part)) for standing, part in PARTS.items()}
        #: tenants by name, and tenants with waiting attempts
        self._tenants: dict[str, _Tenant] = {}
        self._queued: dict[str, _Tenant] = {}

    def running(self, tenant: str) -> int:
        """Return the number of slots that a tenant holds."""
        known = self._tenants.get(tenant)
        return 0 if known is None else known.total

    @asynccontextmanager
    async def slot(self, tenant: str, standing: Standing = "quick", host: str = "") -> AsyncIterator[None]:
        """Hold a slot; wait for it if there is none."""
        await self.take(tenant, standing, host)
        try:
            yield
        finally:
            self.give(tenant, standing)

    def try_take(self, tenant: str, standing: Standing) -> bool:
        """Take a slot if one is free for this tenant and standing now."""
        own = self._tenants.get(tenant)
        if own is None:
            own = self._tenants[tenant] = _Tenant()
        if own.waiting[standing] or not self._may_start(own, standing):
            return False
        self._start(own, standing)
        return True

    async def take(self, tenant: str, standing: Standing, host: str) -> None:
        """Take a slot; wait for it if none is free."""
        if self.try_take(tenant, standing):
            return
        own = self._tenants[tenant]
        waiting = own.waiting[standing]
        turn = asyncio.get_running_loop().create_future()
        waiting.add(host, turn)
        self._queued[tenant] = own
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it got the slot in the same moment
                self.give(tenant, standing)
            else:
                waiting.remove(host, turn)
                self._forget(tenant)
            raise

    def give(self, tenant: str, standing: Standing) -> None:
        """Give a slot back."""
        own = self._tenants[tenant]
        own.running[standing] -= 1
        own.total -= 1
        self.free += 1
        if self._queued:
            self._wake()
        self._forget(tenant)

    def _start(self, own: _Tenant, standing: Standing) -> None:
        own.running[standing] += 1
        own.total += 1
        self.free -= 1

    def _may_start(self, own: _Tenant, standing: Standing) -> bool:
        needed = 1 if own.total < self.share else 1 + self.reserve
        return (
            self.free >= needed and own.total < self.bound and own.running[standing] < self._limits[standing]
        )

    def _wake(self) -> None:
        """Start waiting attempts while any may start."""
        while self.free and self._queued:
            chosen: tuple[str, _Tenant, Standing] | None = None
            for name, own in self._queued.items():
                if chosen is None or own.total < chosen[1].total:
                    standing = self._next(own)
                    if standing is not None:
                        chosen = name, own, standing
            if chosen is None:
                return
            name, own, standing = chosen
            turn = own.waiting[standing].pop()
            del self._queued[name]
            if own.waits:
                self._queued[name] = own  # behind tenants with as few slots
            if not turn.done():  # otherwise it was cancelled, and its task has not run yet
                self._start(own, standing)
                turn.set_result(None)

    def _next(self, own: _Tenant) -> Standing | None:
        """Return the standing that may start an attempt and uses the least of its limit."""
        if own.total >= self.bound:
            return None
        eligible = [one for one in PARTS if own.waiting[one] and self._may_start(own, one)]
        return min(eligible, key=lambda one: own.running[one] / self._limits[one], default=None)

    def _forget(self, tenant: str) -> None:
        own = self._tenants.get(tenant)
        if own is None or (tenant in self._queued and own.waits):
            return
        self._queued.pop(tenant, None)
        # The next attempt follows soon: only many idle tenants are worth their deletion.
        if not own.total and len(self._tenants) > IDLE_TENANTS:
            del self._tenants[tenant]
