"""How other precisions would route the events of late: cut beside the table, asked about a sample, timed.

Cuts of the present precision and its neighbours are kept, since the next decision may need them; others are
cut, measured and dropped, as far as a budget of CPU time goes. What was measured of those far away is
forgotten when the near ones show that the events have changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from dispatcher.routing.rebuild import Recut
from dispatcher.routing.table import RoutingTable
from dispatcher.servers.counters import PipelineCounters
from edn.arrays import Floats
from selftune.curve import GRID, NONE, Effort, measure
from selftune.throughput import Operating

#: a hit ratio that differs by so much from the last one is another situation
CHANGE = 0.2
#: topics with a smaller share of the events are left out
LEAST_SHARE = 0.05
#: share of one core that may go into cutting far precisions
BUDGET = 0.05


class Survey:
    """Event loop only, but for the work that it hands to threads."""

    def __init__(self, table: RoutingTable, counters: PipelineCounters, effort: Effort | None = None) -> None:
        self._table = table
        self._counters = counters
        self._effort = effort or Effort()
        self._recuts: dict[float, Recut] = {}
        self._measured: dict[float, Operating] = {}
        self._shares: dict[int, float] = {}
        self._far = 0
        self._budget = 0.0
        self._one_at_a_time = asyncio.Lock()
        #: CPU seconds that all this has taken, which are not the events'
        self.spent = 0.0

    @property
    def measured(self) -> dict[float, Operating]:
        return dict(sorted(self._measured.items()))

    async def near(self, precision: float, step: float, seconds: float) -> None:
        """Measure this precision, its neighbours, and in turn one of the others if `seconds` pay for it."""
        async with self._one_at_a_time:
            neighbours = {round(min(1.0, max(0.0, precision + by)), 6) for by in (-step, 0.0, step)}
            before = {at: self._measured.get(at) for at in neighbours}
            await self._measure(neighbours, keep=True)
            if any(was is not None and _changed(was, self._measured[at]) for at, was in before.items()):
                self._measured = {at: one for at, one in self._measured.items() if at in neighbours}
            self._rescale(before.get(precision), self._measured.get(precision), neighbours)
            self._recuts = {at: recut for at, recut in self._recuts.items() if at in neighbours}
            self._budget = min(seconds, self._budget + BUDGET * seconds)
            others = [at for at in GRID if at not in neighbours]
            if others and self._budget > 0:
                self._far += 1
                began = self.spent
                # Those that nobody has measured come first.
                unknown = [at for at in others if at not in self._measured]
                await self._measure([(unknown or others)[self._far % len(unknown or others)]], keep=False)
                self._budget -= self.spent - began

    def _rescale(self, was: Operating | None, now: Operating | None, near: set[float]) -> None:
        """The machine is not always equally fast: what was timed before is scaled by what was timed again."""
        if was is None or now is None or was.routing <= 0:
            return
        scale = now.routing / was.routing
        for at, one in self._measured.items():
            if at not in near:
                self._measured[at] = Operating(routing=one.routing * scale, hit_ratio=one.hit_ratio)

    async def all(self) -> None:
        """Measure every precision of the grid. Seconds of work, for somebody who asks."""
        async with self._one_at_a_time:
            await self._measure(GRID, keep=False)

    async def cut(self, precision: float) -> Recut:
        """The table at this precision, cut, ready to be applied."""
        recut = self._recut(precision)
        await asyncio.to_thread(recut.work)
        return recut

    def _recut(self, precision: float) -> Recut:
        recut = self._recuts.get(precision)
        if recut is None or not self._table.current(recut):
            recut = self._table.plan(precision)
        return recut

    async def _measure(self, precisions: Iterable[float], *, keep: bool) -> None:
        self._shares = self._counters.shares() or self._shares
        samples = {
            topic: (share, self._counters.samples[topic].points())
            for topic, share in self._shares.items()
            if share >= LEAST_SHARE and topic in self._counters.samples
        }
        if not samples:
            return
        for precision in precisions:
            recut = self._recut(precision)
            self._measured[precision], spent = await asyncio.to_thread(_ask, recut, samples, self._effort)
            self.spent += spent
            if keep:
                self._recuts[precision] = recut


def _ask(recut: Recut, samples: dict[int, tuple[float, Floats]], effort: Effort) -> tuple[Operating, float]:
    """Return the mean cost and hit ratio over the topics, and the CPU seconds of the probe."""
    began = time.thread_time()
    if recut.precision == 0:
        return NONE, 0.0
    recut.work()
    total = sum(share for share, _ in samples.values())
    routing = hits = 0.0
    for topic, (share, points) in samples.items():
        bundle = recut.bundles.get(topic)
        if bundle is None or not recut.servers:
            continue
        found = measure(bundle, len(recut.servers), points, effort)
        routing += share / total * found.routing
        hits += share / total * found.hit_ratio
    return Operating(routing=routing, hit_ratio=hits), time.thread_time() - began


def _changed(was: Operating, now: Operating) -> bool:
    return abs(now.hit_ratio - was.hit_ratio) > CHANGE * max(was.hit_ratio, 0.05)
