"""How much event traffic a way of partitioning leaves: the simulation behind the experiments on placement.

Every method places the same subscriptions, and the same events are then routed with precise summaries. The
hit ratio is forwarded ÷ (published × servers). It rewards imbalance, an empty server is sent nothing, so
every result has the loads beside it. Events that a method may learn from are not those that judge it.

Placement, summaries and routing are the product's own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeVar

import numpy as np

from edn.arrays import Floats, Ints
from edn.errors import InvalidInput
from edn.summary import Maximal, Summary, new_router
from edn.tools.bench.workloads import Workload, crowd, uniform, zipf, zipf_both
from evaluation.experiment import Progress
from evaluation.outcome import Series
from partitioning.methods import PartitionOptions, partition
from partitioning.online import Limits, Settings, new_placement
from partitioning.rows import LocalRows

#: events that the traffic-aware method and the minimum cut learn from
LEARNT = 2048

Distribution = Literal["uniform", "crowd", "zipf", "zipf-both"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The published setting by default."""

    servers: int = 10
    dimensions: int = 4
    per_server: int = 10_000
    events: int = 4000
    #: of subscriptions and events; events are uneven in `crowd` and `zipf-both`
    distribution: Distribution = "uniform"
    alpha: float = 1.0
    bins: int = 10
    #: Zipf-like bounds include their bins
    inclusive: bool = True
    #: the most subscriptions of one server, in parts of the average
    load_factor: float = 2.0

    def workload(self, seed: int) -> Workload:
        d = self.dimensions
        if self.distribution == "uniform":
            return uniform(d)
        if self.distribution == "crowd":
            return crowd(d)
        if self.distribution == "zipf":
            return zipf(d, self.alpha, bins=self.bins, inclusive=self.inclusive)
        if self.distribution == "zipf-both":
            return zipf_both(d, self.alpha, bins=self.bins, inclusive=self.inclusive, seed=seed)
        raise InvalidInput(
            f'no distribution "{self.distribution}"; known are uniform, crowd, zipf, zipf-both'
        )


@dataclass(frozen=True, slots=True)
class Offline:
    """All subscriptions at once, by a method of `partitioning.methods`."""

    method: str
    #: the most subscriptions of a server in parts of the average; None is the setup's
    slack: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Online:
    """One after the other by a policy, after a first share was partitioned offline by the R-tree."""

    policy: str = "rtree"
    offline: float = 0.0
    #: rectangles that are remembered of a server; None remembers all
    bound: int | None = None
    #: subscriptions that each server gets before content decides
    spread: int = 10
    ties: Literal["least-loaded", "random"] = "least-loaded"


@dataclass(frozen=True, slots=True)
class Placed:
    """One method on one seed."""

    hit_ratio: float
    #: sorted
    loads: tuple[int, ...]
    #: processor time of the placement
    seconds: float

    @property
    def imbalance(self) -> float:
        """The largest load in parts of the average."""
        return self.loads[-1] * len(self.loads) / sum(self.loads)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Subscriptions, events, and events to learn from."""

    lo: Floats
    hi: Floats
    events: Floats
    learnt: Floats


@lru_cache(maxsize=2)
def draw(setup: Setup, seed: int) -> Drawn:
    workload = setup.workload(seed)
    rng = np.random.default_rng(seed)
    lo, hi = workload.rectangles(rng, setup.servers * setup.per_server)
    return Drawn(lo, hi, workload.points(rng, setup.events), workload.points(rng, LEARNT))


@lru_cache(maxsize=4096)
def place(setup: Setup, seed: int, method: Offline | Online) -> Placed:
    """Remembered: several experiments ask for the same, and some of it takes a minute."""
    drawn = draw(setup, seed)
    began = time.process_time()
    parts = partitioned(setup, seed, method, drawn)
    seconds = time.process_time() - began
    loads = np.bincount(parts, minlength=setup.servers)
    ratio = hit_ratio(drawn.lo, drawn.hi, parts, setup.servers, drawn.events)
    return Placed(ratio, tuple(sorted(loads.tolist())), seconds)


Method = TypeVar("Method")


def sweep(
    methods: Mapping[str, Method],
    axis: Sequence[float],
    case: Callable[[Method, float], tuple[Setup, Offline | Online]],
    seed: int,
    progress: Progress,
    told: str,
) -> dict[str, list[Placed]]:
    """Places by each method at each point of an axis; `told` is a template of `name` and `x`."""
    found: dict[str, list[Placed]] = {name: [] for name in methods}
    for number, (name, method) in enumerate(methods.items()):
        for done, x in enumerate(axis):
            progress(number * len(axis) + done, len(methods) * len(axis), told.format(name=name, x=x))
            setup, way = case(method, x)
            found[name].append(place(setup, seed, way))
    return found


def ratios_and_loads(axis: Sequence[float], found: Mapping[str, Sequence[Placed]]) -> dict[str, Series]:
    """The curves of a sweep: the hit ratio, and how uneven the loads are."""
    series = {}
    for name, placed in found.items():
        series[name] = Series(list(axis), [one.hit_ratio for one in placed])
        series[f"load of {name}"] = Series(list(axis), [one.imbalance for one in placed])
    return series


def partitioned(setup: Setup, seed: int, method: Offline | Online, drawn: Drawn) -> Ints:
    """The server of each subscription."""
    if isinstance(method, Offline):
        factor = setup.load_factor if method.slack is None else method.slack
        return _offline(setup, seed, method.method, drawn, len(drawn.lo), factor)
    first = int(method.offline * len(drawn.lo))
    begun = (
        _offline(setup, seed, "rtree", drawn, first, setup.load_factor)
        if first
        else np.empty(0, dtype=np.int64)
    )
    return _online(setup, seed, method, drawn, begun)


def _offline(setup: Setup, seed: int, method: str, drawn: Drawn, count: int, factor: float) -> Ints:
    rows = LocalRows(drawn.lo[:count], drawn.hi[:count])
    capacity = -(-int(factor * count) // setup.servers)
    wish = PartitionOptions(method=method, servers=setup.servers, capacity=capacity, seed=seed)
    return partition(rows, wish, drawn.learnt).parts(rows.whole)


def _online(setup: Setup, seed: int, method: Online, drawn: Drawn, begun: Ints) -> Ints:
    servers = [str(server) for server in range(setup.servers)]
    settings = Settings(
        limits=Limits(threshold=int(setup.load_factor * setup.per_server)),
        bound=method.bound,
        spread=method.spread,
        ties=method.ties,
    )
    placement = new_placement(method.policy, settings=settings, rng=random.Random(seed))
    parts = np.concatenate([begun, np.full(len(drawn.lo) - len(begun), -1)])
    loads = dict.fromkeys(servers, 0)
    for number, server in enumerate(servers):
        mine = np.flatnonzero(begun == number)
        if len(mine):
            placement.summarise(server, *_summary(drawn.lo[mine], drawn.hi[mine], method.bound))
            loads[server] = len(mine)
    for i in range(len(begun), len(drawn.lo)):
        server = placement.place(loads, drawn.lo[i], drawn.hi[i])
        loads[server] += 1
        parts[i] = int(server)
    return parts


def hit_ratio(lo: Floats, hi: Floats, parts: Ints, servers: int, events: Floats) -> float:
    """By the router of the product, with precise summaries."""
    router = new_router("bitmap")
    covers = [
        (server, router.cover(*maximal(lo[parts == server], hi[parts == server])))
        for server in range(servers)
    ]
    routed = np.zeros((len(events), servers), dtype=np.bool_)
    router.bundle(covers).mark(events, routed)
    return float(routed.mean())


def maximal(lo: Floats, hi: Floats) -> tuple[Floats, Floats]:
    """The rectangles that no other one covers."""
    kept = Maximal(lo.shape[1])
    kept.insert(range(len(lo)), lo, hi)
    return kept.rects()


def _summary(lo: Floats, hi: Floats, bound: int | None) -> tuple[Floats, Floats]:
    low, high = maximal(lo, hi)
    if bound is None or len(low) <= bound:
        return low, high
    return Summary.build(low, high).cut(bound)
