"""Placement of subscriptions, simulated: the event traffic and the loads of each way to partition.

Every method places the same subscriptions; the same events are then routed with precise summaries. The hit
ratio is forwarded ÷ (published × servers). It rewards imbalance, because an empty server receives nothing,
so every result includes the loads. Methods learn from other events than those that judge them.

Placement, summaries and routing are the product's own code.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from edn.arrays import Floats, Ints
from edn.summary import Maximal, Summary, new_router
from edn.tools.bench.workloads import Workload, crowd, uniform, zipf, zipf_both
from evaluation.experiment import Outcome, Progress, Series, track
from partitioning.methods import PartitionOptions, partition
from partitioning.online import Limits, Settings, new_placement
from partitioning.rows import LocalRows

#: events from which `traffic` and `mincut` learn
LEARNT = 2048

Distribution = Literal["uniform", "crowd", "zipf", "zipf-both"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Subscriptions and events; the defaults are the published setting."""

    servers: int = 10
    dimensions: int = 4
    per_server: int = 10_000
    events: int = 4000
    #: of subscriptions and events; events are not uniform in `crowd` and `zipf-both`
    distribution: Distribution = "uniform"
    alpha: float = 1.0
    bins: int = 10
    #: Zipf-like bounds include their bins
    inclusive: bool = True
    #: largest load of a server ÷ average load
    load_factor: float = 2.0

    def workload(self, seed: int) -> Workload:
        d = self.dimensions
        if self.distribution in ("uniform", "crowd"):
            return uniform(d) if self.distribution == "uniform" else crowd(d)
        law: dict[str, Any] = {"bins": self.bins, "inclusive": self.inclusive}
        if self.distribution == "zipf":
            return zipf(d, self.alpha, **law)
        return zipf_both(d, self.alpha, seed=seed, **law)


@dataclass(frozen=True, slots=True)
class Offline:
    """Partitions all subscriptions at once by a method of `partitioning.methods`."""

    method: str
    #: largest load of a server ÷ average load; None takes that of the setup
    slack: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Online:
    """Places one subscription after the other by a policy, after the R-tree has partitioned a first share."""

    policy: str = "rtree"
    offline: float = 0.0
    #: rectangles in the summary of a server; None for all
    bound: int | None = None
    #: subscriptions per server that go to the least loaded server
    spread: int = 10
    ties: Literal["least-loaded", "random"] = "least-loaded"


#: the ways to partition, by their published names
METHODS: dict[str, Offline | Online] = {
    "random": Offline("random"),
    "K-mean online": Online(policy="kmeans"),
    "K-mean offline": Offline("kmeans"),
    "R-tree online": Online(),
    "R-tree half offline": Online(offline=0.5),
    "R-tree offline": Offline("rtree"),
}


@dataclass(frozen=True, slots=True)
class Placed:
    """The result of one method and seed."""

    hit_ratio: float
    #: sorted
    loads: tuple[int, ...]

    @property
    def imbalance(self) -> float:
        """Largest load ÷ average load."""
        return self.loads[-1] * len(self.loads) / sum(self.loads)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Subscriptions, events, and other events to learn from."""

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
    """Places all subscriptions; cached, because several experiments need the same result."""
    drawn = draw(setup, seed)
    parts = partitioned(setup, seed, method, drawn)
    loads = np.bincount(parts, minlength=setup.servers)
    ratio = hit_ratio(drawn.lo, drawn.hi, parts, setup.servers, drawn.events)
    return Placed(ratio, tuple(sorted(loads.tolist())))


def sweep(
    cases: Mapping[str, Sequence[tuple[Setup, Offline | Online]]],
    axis: Sequence[float],
    seed: int,
    progress: Progress,
) -> Outcome:
    """Runs one case per name and point of an axis; returns the curves of hit ratios and imbalances."""
    outcome = Outcome()
    jobs = [(name, x, *case) for name, row in cases.items() for x, case in zip(axis, row, strict=True)]
    placed = [place(setup, seed, way) for _, _, setup, way in track(jobs, progress, "{0} at {1:g}")]
    for number, name in enumerate(cases):
        row = placed[number * len(axis) : (number + 1) * len(axis)]
        outcome.series[name] = Series(axis, [one.hit_ratio for one in row])
        outcome.series[f"load of {name}"] = Series(axis, [one.imbalance for one in row])
    return outcome


def partitioned(setup: Setup, seed: int, method: Offline | Online, drawn: Drawn) -> Ints:
    """Returns the server of each subscription."""
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
    """Returns the hit ratio of precise summaries."""
    router = new_router("bitmap")
    covers = [
        (server, router.cover(*maximal(lo[parts == server], hi[parts == server])))
        for server in range(servers)
    ]
    routed = np.zeros((len(events), servers), dtype=np.bool_)
    router.bundle(covers).mark(events, routed)
    return float(routed.mean())


def maximal(lo: Floats, hi: Floats) -> tuple[Floats, Floats]:
    """Returns the maximal rectangles."""
    kept = Maximal(lo.shape[1])
    kept.insert(range(len(lo)), lo, hi)
    return kept.rects()


def _summary(lo: Floats, hi: Floats, bound: int | None) -> tuple[Floats, Floats]:
    low, high = maximal(lo, hi)
    if bound is None or len(low) <= bound:
        return low, high
    return Summary.build(low, high).cut(bound)
