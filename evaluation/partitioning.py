"""How much event traffic each way of partitioning saves: the published Figures 3, 5 and 6 at one number of
servers.

Every method places the same subscriptions, and the same events are then routed with precise summaries. The
hit ratio is forwarded ÷ (published × servers). It rewards imbalance, an empty server is sent nothing, so
every result has the loads beside it. Events that a method may learn from are not those that judge it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from edn.bench.workloads import Workload, uniform, uniform_rectangles, zipf, zipf_both
from edn.errors import InvalidInput
from edn.summary import Maximal, new_router
from partitioning.kernels import Floats, Ints
from partitioning.methods import Wish, partition
from partitioning.online import Limits, Settings, new_placement
from partitioning.rows import LocalRows

#: events that the traffic-aware method and the minimum cut learn from
LEARNT = 2048

DISTRIBUTIONS = ("uniform", "normal", "zipf", "zipf-both")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The published setting by default."""

    servers: int = 10
    dimensions: int = 4
    per_server: int = 10_000
    events: int = 4000
    #: of subscriptions and events; `normal` and `zipf-both` are those with uneven events
    distribution: str = "uniform"
    alpha: float = 1.0
    seeds: tuple[int, ...] = (0, 1, 2)
    #: the most subscriptions of one server, in parts of the average
    load_factor: float = 2.0

    def workload(self, seed: int) -> Workload:
        if self.distribution == "uniform":
            return uniform(self.dimensions)
        if self.distribution == "zipf":
            return zipf(self.dimensions, self.alpha)
        if self.distribution == "zipf-both":
            return zipf_both(self.dimensions, self.alpha, seed=seed)
        if self.distribution == "normal":
            d = self.dimensions
            return Workload(
                "normal events",
                d,
                lambda rng, n: uniform_rectangles(rng, n, d),
                lambda rng, n: rng.normal(9.5, 0.25, (n, d)),
            )
        raise InvalidInput(f'no distribution "{self.distribution}"; known are {", ".join(DISTRIBUTIONS)}')


class Outcome(msgspec.Struct, frozen=True):
    """One method on one seed."""

    method: str
    seed: int
    hit_ratio: float
    #: sorted
    loads: list[int]
    #: processor time of the placement
    seconds: float


class Result(msgspec.Struct, frozen=True):
    """One method over all seeds."""

    method: str
    hit_ratio: float
    least: float
    greatest: float
    #: the smallest and the largest load of any seed, and the largest in parts of the average
    smallest_load: int
    largest_load: int
    imbalance: float
    seconds: float
    outcomes: list[Outcome]


@dataclass(frozen=True, slots=True)
class Case:
    """What a method gets."""

    setup: Setup
    seed: int
    lo: Floats
    hi: Floats
    #: a sample of events to learn from
    learnt: Floats

    @property
    def capacity(self) -> int:
        return int(self.setup.load_factor * self.setup.per_server)

    def offline(self, method: str, lo: Floats, hi: Floats, capacity: int | None = None) -> Ints:
        rows = LocalRows(lo, hi)
        wish = Wish(method=method, servers=self.setup.servers, capacity=capacity, seed=self.seed)
        return partition(rows, wish, self.learnt).parts(rows.whole)

    def online(self, policy: str, first: Ints) -> Ints:
        """Place one by one what comes after those that are placed already; everything is remembered."""
        servers = [str(server) for server in range(self.setup.servers)]
        settings = Settings(limits=Limits(threshold=self.capacity), bound=None)
        placement = new_placement(policy, settings=settings, rng=random.Random(self.seed))
        parts = np.concatenate([first, np.full(len(self.lo) - len(first), -1)])
        loads = dict.fromkeys(servers, 0)
        for number, server in enumerate(servers):
            mine = np.flatnonzero(first == number)
            if len(mine):
                placement.summarise(server, *_maximal(self.lo[mine], self.hi[mine]))
                loads[server] = len(mine)
        for i in range(len(first), len(self.lo)):
            server = placement.place(loads, self.lo[i], self.hi[i])
            loads[server] += 1
            parts[i] = int(server)
        return parts


def _none(case: Case) -> Ints:
    return np.empty(0, dtype=np.int64)


def _half(case: Case) -> Ints:
    half = len(case.lo) // 2
    return case.offline("rtree", case.lo[:half], case.hi[:half])


#: name → how it partitions
METHODS: dict[str, Callable[[Case], Ints]] = {
    "random": lambda case: case.offline("random", case.lo, case.hi),
    "R-tree offline": lambda case: case.offline("rtree", case.lo, case.hi),
    "R-tree half offline, half online": lambda case: case.online("rtree", _half(case)),
    "R-tree online": lambda case: case.online("rtree", _none(case)),
    "K-means offline": lambda case: case.offline("kmeans", case.lo, case.hi, case.capacity),
    "K-means online": lambda case: case.online("kmeans", _none(case)),
    "traffic offline": lambda case: case.offline("traffic", case.lo, case.hi),
    # At twice the average it would simply leave servers empty; a twentieth of slack is what it needs to move.
    "minimum cut": lambda case: case.offline(
        "mincut", case.lo, case.hi, -(-len(case.lo) * 21 // (case.setup.servers * 20))
    ),
}


def evaluate(
    setup: Setup,
    methods: tuple[str, ...] = tuple(METHODS),
    progress: Callable[[int, int], None] | None = None,
) -> list[Result]:
    """All methods on all seeds."""
    for method in methods:
        if method not in METHODS:
            raise InvalidInput(f'no method "{method}"; known are {", ".join(METHODS)}')
    outcomes: dict[str, list[Outcome]] = {method: [] for method in methods}
    done = 0
    for seed in setup.seeds:
        workload = setup.workload(seed)
        rng = np.random.default_rng(seed)
        lo, hi = workload.rectangles(rng, setup.servers * setup.per_server)
        events = workload.points(rng, setup.events)
        case = Case(setup, seed, lo, hi, workload.points(rng, LEARNT))
        for method in methods:
            started = time.process_time()
            parts = METHODS[method](case)
            seconds = time.process_time() - started
            loads = np.bincount(parts, minlength=setup.servers)
            ratio = hit_ratio(lo, hi, parts, setup.servers, events)
            outcomes[method].append(Outcome(method, seed, ratio, sorted(loads.tolist()), round(seconds, 3)))
            done += 1
            if progress is not None:
                progress(done, len(setup.seeds) * len(methods))
    return [_result(setup, method, outcomes[method]) for method in methods]


def hit_ratio(lo: Floats, hi: Floats, parts: Ints, servers: int, events: Floats) -> float:
    """By the router of the product, with precise summaries."""
    router = new_router("bitmap")
    covers = [(server, router.cover(lo[parts == server], hi[parts == server])) for server in range(servers)]
    routed = np.zeros((len(events), servers), dtype=np.bool_)
    router.bundle(covers).mark(events, routed)
    return float(routed.mean())


def _maximal(lo: Floats, hi: Floats) -> tuple[Floats, Floats]:
    maximal = Maximal(lo.shape[1])
    maximal.insert(range(len(lo)), lo, hi)
    return maximal.rects()


def _result(setup: Setup, method: str, outcomes: list[Outcome]) -> Result:
    ratios = [one.hit_ratio for one in outcomes]
    largest = max(one.loads[-1] for one in outcomes)
    return Result(
        method,
        float(np.mean(ratios)),
        min(ratios),
        max(ratios),
        min(one.loads[0] for one in outcomes),
        largest,
        largest / setup.per_server,
        round(float(np.mean([one.seconds for one in outcomes])), 3),
        outcomes,
    )
