"""Measures healthy addresses alone and beside slow and dead ones.

Each round starts every system anew. First all addresses are healthy; then a tenth of them answers slowly and
a twentieth accepts connections and never answers. Only the healthy ones are counted, in both parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

import numpy as np

from edn.arrays import Ints
from edn.tools.bench.delivery.load import Load, Phase, Receivers
from edn.tools.bench.delivery.peers.system import System
from edn.tools.bench.delivery.receiver import Behaviour
from edn.tools.bench.delivery.results import Fairness
from edn.tools.bench.delivery.workload import Workload

SLOW_SHARE = 0.1
DEAD_SHARE = 0.05
SLOW_SECONDS = 2.0
#: with fewer addresses a share of them would be none
FEWEST_ADDRESSES = 20
#: seconds in which the bad addresses show what they are before anything is measured
WARM_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class _Part:
    calm: Phase
    flat: Phase

    def percentile(self, percent: float) -> float:
        found = self.calm.latencies
        return float(np.percentile(found, percent)) * 1000 if len(found) else 0.0

    @property
    def entries_per_second(self) -> float:
        return self.flat.entries / (self.flat.seconds or 1)


class FairnessRounds:
    """The rounds of one system and one number of addresses."""

    def __init__(self, name: str, workload: Workload, receivers: Receivers, rng: np.random.Generator) -> None:
        self._name = name
        self._workload = workload
        self._receivers = receivers
        self._rng = rng
        addresses = workload.addresses
        order = rng.permutation(addresses)
        slow, dead = max(1, round(addresses * SLOW_SHARE)), max(1, round(addresses * DEAD_SHARE))
        self._slow, self._dead = order[:slow], order[slow : slow + dead]
        self._healthy: Ints = np.sort(order[slow + dead :])
        self._alone: list[_Part] = []
        self._beside: list[_Part] = []

    async def run_round(self, system: System, rate: float, seconds: float, events: int, batch: int) -> None:
        with ExitStack() as stack:
            stack.enter_context(system)
            await system.subscribe(self._workload, self._receivers)
            await system.activate(system.modes[0])
            load = Load(system, self._receivers, self._workload, lists_matches=system.lists_matches)
            load.healthy = self._healthy
            slow, dead = self._slow.tolist(), self._dead.tolist()
            fine = Behaviour(ignored=slow + dead)
            bad = Behaviour(slow, SLOW_SECONDS, dead, ignored=slow + dead)
            for behaviour, parts in ((fine, self._alone), (bad, self._beside)):
                await self._receivers.behave(behaviour)
                await load.calm(self._rng, rate, WARM_SECONDS)
                calm = await load.calm(self._rng, rate, seconds)
                parts.append(_Part(calm, await load.flat_out(self._rng, events, batch)))
            # A system that ends shall wait for no answer.
            await self._receivers.behave(fine)

    def conclude(self) -> Fairness:
        def middle(parts: Sequence[_Part], percent: float) -> float:
            return median(part.percentile(percent) for part in parts)

        pairs = list(zip(self._alone, self._beside, strict=True))
        phases = [phase for part in (*self._alone, *self._beside) for phase in (part.calm, part.flat)]
        return Fairness(
            system=self._name,
            addresses=self._workload.addresses,
            healthy=len(self._healthy),
            slow=len(self._slow),
            dead=len(self._dead),
            alone_p50=middle(self._alone, 50),
            alone_p99=middle(self._alone, 99),
            beside_p50=middle(self._beside, 50),
            beside_p99=middle(self._beside, 99),
            alone_entries=median(part.entries_per_second for part in self._alone),
            beside_entries=median(part.entries_per_second for part in self._beside),
            p99_ratio=median(beside.percentile(99) / (alone.percentile(99) or 1) for alone, beside in pairs),
            entries_ratio=median(
                beside.entries_per_second / (alone.entries_per_second or 1) for alone, beside in pairs
            ),
            missing=sum(phase.missing for phase in phases),
            surplus=sum(phase.surplus for phase in phases),
        )
