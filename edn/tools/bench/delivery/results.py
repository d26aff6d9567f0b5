"""The results of the benchmark: medians of the rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Self

import numpy as np

from edn.tools.bench.delivery.load import Phase

#: peers that sync each write to disk, as the product does
DURABLE_PEERS = frozenset({"pg", "redis"})
FLAT_OUT = "flat out"


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

    @property
    def is_calm(self) -> bool:
        return self.load.startswith("calm")

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
    load: str
    cpu_us_per_post: float
    posts_per_second: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """Where the time of single events to one subscriber goes: medians, milliseconds since publishing."""

    load: str
    events: int
    #: in order
    steps: dict[str, float]

    @classmethod
    def of(cls, load: str, events: Sequence[dict[str, float]]) -> Self:
        names = {name for steps in events for name in steps}
        middle = {name: median(steps[name] for steps in events if name in steps) for name in names}
        return cls(load, len(events), dict(sorted(middle.items(), key=lambda step: step[1])))


@dataclass(frozen=True, slots=True)
class Fairness:
    """Healthy addresses of one system, alone and beside slow and dead ones: medians of the rounds."""

    system: str
    addresses: int
    healthy: int
    slow: int
    dead: int
    #: milliseconds, single events
    alone_p50: float
    alone_p99: float
    beside_p50: float
    beside_p99: float
    #: entries per second, flat out
    alone_entries: float
    beside_entries: float
    #: medians of the rounds' ratios, beside ÷ alone
    p99_ratio: float
    entries_ratio: float
    missing: int
    surplus: int


@dataclass(slots=True)
class Outcome:
    sink: str
    rounds: int
    costs: list[Cost] = field(default_factory=list)
    floor: list[FloorCost] = field(default_factory=list)
    timelines: list[Timeline] = field(default_factory=list)
    fairness: list[Fairness] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether every notification arrived, and nothing else did."""
        return not self.failures()

    def failures(self) -> list[str]:
        checked: list[Cost | Fairness] = [*self.costs, *self.fairness]
        return [
            f"{one.system}, {one.addresses:,} addresses: {one.missing} matches missing, {one.surplus} surplus"
            for one in checked
            if one.missing or one.surplus
        ]

    def verdicts(self) -> list[str]:
        """Compares the product with the floor and with the better peer."""
        found = []
        for cost in self.costs:
            if cost.system != "edn":
                continue
            # A POST of the floor has one entry; flat out, one of the product has many.
            unit, cpu = ("POST", cost.cpu_us_per_post) if cost.is_calm else ("entry", cost.cpu_us_per_entry)
            floors = {
                one.load: cpu / one.cpu_us_per_post
                for one in self.floor
                if (one.addresses, one.variant) == (cost.addresses, "both")
            }
            parts = []
            if cost.load in floors:
                parts.append(f"{floors.pop(cost.load):.1f} × the floor's CPU per {unit} at this load")
            if cost.is_calm and FLAT_OUT in floors:
                parts.append(f"{floors[FLAT_OUT]:.1f} × the floor's flat out")
            parts += self._beside_peers(cost)
            if parts:
                found.append(f"{cost.addresses:,} addresses, {cost.load}: {', '.join(parts)}")
        return found

    def _beside_peers(self, cost: Cost) -> list[str]:
        peers = [
            one
            for one in self.costs
            if one.system in DURABLE_PEERS
            and (one.addresses, one.load) == (cost.addresses, cost.load)
            and not one.missing
        ]
        if not peers:
            return []
        cheapest = min(peers, key=lambda one: one.cpu_us_per_entry)
        parts = [
            f"{cost.cpu_us_per_entry / cheapest.cpu_us_per_entry:.2f} × {cheapest.system}'s CPU per entry"
        ]
        if cost.is_calm:
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
