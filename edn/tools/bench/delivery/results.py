"""The results of the benchmark: medians of the rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Self

import numpy as np

from edn.tools.bench.delivery.load import Phase


@dataclass(frozen=True, slots=True)
class Cost:
    """One system under one load; milliseconds, megabytes, CPU in microseconds."""

    system: str
    load: str
    addresses: int
    events: int
    p50: float
    p99: float
    p999: float
    posts_per_second: float
    entries_per_second: float
    events_per_second: float
    entries_per_post: float
    cpu_us_per_post: float
    cpu_us_per_entry: float
    #: CPU of each process, per POST
    roles: dict[str, float]
    #: cores that each process uses without any event, measured before
    idle: dict[str, float]
    #: the idle part of `cpu_us_per_post`
    idle_us_per_post: float
    memory_mb: float
    #: cores that processes outside the benchmark used
    foreign: float
    missing: int
    surplus: int

    @classmethod
    def of(
        cls, system: str, load: str, addresses: int, phases: Sequence[Phase], idle: dict[str, float]
    ) -> Self:
        def middle(figure: Callable[[Phase], float]) -> float:
            return float(median(map(figure, phases)))

        def percentile(percent: float) -> float:
            return middle(
                lambda one: float(np.percentile(one.latencies, percent)) * 1000 if one.entries else 0.0
            )

        def per_post(one: Phase, cpu: float) -> float:
            return cpu / max(1, one.posts) * 1e6

        return cls(
            system=system,
            load=load,
            addresses=addresses,
            events=phases[0].events,
            p50=percentile(50),
            p99=percentile(99),
            p999=percentile(99.9),
            posts_per_second=middle(lambda one: one.posts / (one.seconds or 1)),
            entries_per_second=middle(lambda one: one.entries / (one.seconds or 1)),
            events_per_second=middle(lambda one: one.events / (one.seconds or 1)),
            entries_per_post=middle(lambda one: one.entries / max(1, one.posts)),
            cpu_us_per_post=middle(lambda one: per_post(one, one.usage.total)),
            cpu_us_per_entry=middle(lambda one: one.usage.total / max(1, one.entries) * 1e6),
            roles={
                role: middle(lambda one, role=role: per_post(one, one.usage.cpu[role]))  # type: ignore[misc]  # mypy takes no default of a lambda
                for role in phases[0].usage.cpu
            },
            idle=idle,
            idle_us_per_post=middle(lambda one: per_post(one, sum(idle.values()) * one.usage.seconds)),
            memory_mb=middle(lambda one: one.memory_mb),
            foreign=middle(lambda one: one.usage.foreign),
            missing=sum(one.missing for one in phases),
            surplus=sum(one.surplus for one in phases),
        )


@dataclass(frozen=True, slots=True)
class FloorCost:
    addresses: int
    variant: str
    cpu_us_per_post: float
    posts_per_second: float


@dataclass(slots=True)
class Outcome:
    sink: str
    rounds: int
    costs: list[Cost] = field(default_factory=list)
    floor: list[FloorCost] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether every notification arrived, and nothing else did."""
        return not any(cost.missing or cost.surplus for cost in self.costs)

    def verdicts(self) -> list[str]:
        """Compares the product with the floor and with the better peer."""
        found = []
        for cost in self.costs:
            if cost.system != "edn":
                continue
            floor = [
                one.cpu_us_per_post
                for one in self.floor
                if (one.addresses, one.variant) == (cost.addresses, "both")
            ]
            parts = [f"{cost.cpu_us_per_post / one:.1f} × the floor's CPU per POST" for one in floor]
            parts += self._beside_peers(cost)
            if parts:
                found.append(f"{cost.addresses:,} addresses, {cost.load}: {', '.join(parts)}")
        return found

    def _beside_peers(self, cost: Cost) -> list[str]:
        peers = [
            one
            for one in self.costs
            if one.system not in ("edn", "floor") and (one.addresses, one.load) == (cost.addresses, cost.load)
        ]
        if not peers:
            return []
        cheapest = min(peers, key=lambda one: one.cpu_us_per_entry)
        parts = [
            f"{cost.cpu_us_per_entry / cheapest.cpu_us_per_entry:.2f} × {cheapest.system}'s CPU per entry"
        ]
        if cost.load.startswith("calm"):
            quickest = min(peers, key=lambda one: one.p50)
            parts.append(f"{cost.p50 / quickest.p50:.2f} × {quickest.system}'s p50")
            steadiest = min(peers, key=lambda one: one.p99)
            parts.append(f"{cost.p99 / steadiest.p99:.2f} × {steadiest.system}'s p99")
        else:
            fastest = max(peers, key=lambda one: one.entries_per_second)
            ratio = cost.entries_per_second / fastest.entries_per_second
            parts.append(f"{ratio:.2f} × {fastest.system}'s entries per second")
        return parts

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "verdicts": self.verdicts(), "complete": self.is_complete}
