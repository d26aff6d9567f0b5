"""Measures how other precisions would route recent events: CPU time and hit ratio.

Rebuilds of the present precision and its neighbours are cached, because the next decision may apply one.
Other precisions are rebuilt, measured and dropped, within a budget of CPU time. Their measurements are
dropped when the near ones show that the events have changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from dispatcher.routing.table import RoutingTable
from dispatcher.routing.topic_routes import TableRebuild
from dispatcher.servers.pipeline import PipelineCounters
from edn.arrays import Floats
from edn.runtime.ownership import owned
from selftune.curve import GRID, NONE, Effort, measure
from selftune.throughput import OperatingPoint

#: relative change of the hit ratio from which the events have changed
CHANGE = 0.2
#: topics with a smaller share of the events are ignored
LEAST_SHARE = 0.05
#: share of one core for measuring far precisions
BUDGET = 0.05


@owned("loop")
class PrecisionProbe:
    def __init__(self, table: RoutingTable, counters: PipelineCounters, effort: Effort | None = None) -> None:
        self._table = table
        self._counters = counters
        self._effort = effort or Effort()
        self._rebuilds: dict[float, TableRebuild] = {}
        self._measured: dict[float, OperatingPoint] = {}
        self._shares: dict[int, float] = {}
        self._far = 0
        self._budget = 0.0
        self._measuring = asyncio.Lock()
        #: CPU seconds of all measurements
        self.spent = 0.0

    @property
    def measured(self) -> dict[float, OperatingPoint]:
        return dict(sorted(self._measured.items()))

    async def measure_near(self, precision: float, step: float, seconds: float) -> None:
        """Measure a precision, its neighbours and, within the budget of an interval, one other."""
        async with self._measuring:
            neighbours = {round(min(1.0, max(0.0, precision + by)), 6) for by in (-step, 0.0, step)}
            before = {at: self._measured.get(at) for at in neighbours}
            await self._measure(neighbours, keep=True)
            if any(was is not None and _has_changed(was, self._measured[at]) for at, was in before.items()):
                self._measured = {at: one for at, one in self._measured.items() if at in neighbours}
            self._rescale(before.get(precision), self._measured.get(precision), neighbours)
            self._rebuilds = {at: one for at, one in self._rebuilds.items() if at in neighbours}
            self._budget = min(seconds, self._budget + BUDGET * seconds)
            others = [at for at in GRID if at not in neighbours]
            if others and self._budget > 0:
                self._far += 1
                began = self.spent
                # Precisions without a measurement come first.
                unknown = [at for at in others if at not in self._measured]
                await self._measure([(unknown or others)[self._far % len(unknown or others)]], keep=False)
                self._budget -= self.spent - began

    def _rescale(self, was: OperatingPoint | None, now: OperatingPoint | None, near: set[float]) -> None:
        """Scale the times of far precisions by the present speed of the machine."""
        if was is None or now is None or was.routing <= 0:
            return
        scale = now.routing / was.routing
        for at, one in self._measured.items():
            if at not in near:
                self._measured[at] = OperatingPoint(routing=one.routing * scale, hit_ratio=one.hit_ratio)

    async def measure_all(self) -> None:
        """Measure every precision of the grid, which takes seconds."""
        async with self._measuring:
            await self._measure(GRID, keep=False)

    async def rebuild(self, precision: float) -> TableRebuild:
        """Return a finished rebuild of the table at a precision, ready to be applied."""
        rebuild = self._cached_or_new(precision)
        await asyncio.to_thread(rebuild.run)
        return rebuild

    def _cached_or_new(self, precision: float) -> TableRebuild:
        rebuild = self._rebuilds.get(precision)
        if rebuild is None or not self._table.is_current(rebuild):
            rebuild = self._table.plan(precision)
        return rebuild

    async def _measure(self, precisions: Iterable[float], *, keep: bool) -> None:
        self._shares = self._counters.pop_shares() or self._shares
        samples = {
            topic: (share, self._counters.samples[topic].points())
            for topic, share in self._shares.items()
            if share >= LEAST_SHARE and topic in self._counters.samples
        }
        if not samples:
            return
        for precision in precisions:
            rebuild = self._cached_or_new(precision)
            self._measured[precision], spent = await asyncio.to_thread(
                _measure, rebuild, samples, self._effort
            )
            self.spent += spent
            if keep:
                self._rebuilds[precision] = rebuild


def _measure(
    rebuild: TableRebuild, samples: dict[int, tuple[float, Floats]], effort: Effort
) -> tuple[OperatingPoint, float]:
    """Return the mean cost and hit ratio over the topics, and the CPU seconds of the measurement."""
    began = time.thread_time()
    if rebuild.precision == 0:
        return NONE, 0.0
    rebuild.run()
    total = sum(share for share, _ in samples.values())
    routing = hits = 0.0
    for topic, (share, points) in samples.items():
        bundle = rebuild.bundles.get(topic)
        if bundle is None or not rebuild.servers:
            continue
        found = measure(bundle, len(rebuild.servers), points, effort)
        routing += share / total * found.routing
        hits += share / total * found.hit_ratio
    return OperatingPoint(routing=routing, hit_ratio=hits), time.thread_time() - began


def _has_changed(was: OperatingPoint, now: OperatingPoint) -> bool:
    return abs(now.hit_ratio - was.hit_ratio) > CHANGE * max(was.hit_ratio, 0.05)
