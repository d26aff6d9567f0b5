"""The cost of searching a cut and its hit ratio, by precision: the curves T_d(p) and R(p).

The published T_d is that of a tree on a machine of its time, not that of today's kernel. So the cost is
counted: a cut is searched depth first from the root of its hierarchy until one of its rectangles contains
the event, and every rectangle (and every coordinate) that is tested counts. One factor converts counts to
seconds: the one for which precise summaries of 10,000 uniform rectangles in 8 dimensions take 139 µs, as in
the published Figure 12 (334 events/s with T_f = 1.6 ms and ten servers). The CPU time of our own router on
the same cuts is measured as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import msgspec
import numpy as np

from edn.arrays import Floats, Ints
from edn.index.compilation import on_first_use
from edn.summary import Summary, new_router
from edn.summary.hierarchy import By
from edn.summary.measure import EVEN_SHARE
from edn.tools.bench.workloads import SIDE, Workload, crowd, limited, local, uniform
from evaluation.simulated_placement import maximal
from partitioning.methods import PartitionOptions, partition
from partitioning.rows import LocalRows
from selftune.curve import Effort, measure, rectangles
from selftune.throughput import OperatingPoint

#: published in Figure 12: seconds per server to route with precise summaries
ROUTING_PRECISE = 139e-6
#: precisions besides 0
FINE = tuple(round(step / 50, 2) for step in range(1, 51))
#: bytes before the children in a summary's format
_HEADER = 16

Unit = Literal["tests", "coordinates", "kernel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The shape and the cut of summaries."""

    by: By
    split_only: bool = False
    even: float = EVEN_SHARE


#: as published: a tree split from the top by plain volumes, and cut at a depth
PUBLISHED_WAY = Way(by="level", split_only=True, even=1.0)
OUR_WAY = Way(by="waste")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Subscriptions, events and summaries; the defaults are the published setting."""

    servers: int = 10
    per_server: int = 10_000
    dimensions: int = 8
    events: int = 2000
    #: of the subscriptions: longest side, largest volume (share of the space), share of the space they are in
    side: float = SIDE
    volume: float = 1.0
    within: float = 1.0
    #: events near one corner instead of uniform events
    crowded: bool = False
    #: method of `partitioning.methods`
    partition: str = "random"
    way: Way = PUBLISHED_WAY
    #: also measure our own router, at every tenth
    timed: bool = False

    def workload(self) -> Workload:
        d = self.dimensions
        if self.crowded:
            return crowd(d)
        if self.within < 1.0:
            return local(d, self.within)
        if self.side < SIDE or self.volume < 1.0:
            return limited(d, side=self.side, volume=self.volume)
        return uniform(d)


class Point(msgspec.Struct, frozen=True):
    """Means over all servers at one precision."""

    precision: float
    hit_ratio: float
    #: rectangles, and their coordinates, tested per event and server
    tests: float
    coordinates: float
    #: CPU seconds of our own router per event and server; NaN where it was not measured
    kernel: float = float("nan")


@dataclass(frozen=True, slots=True)
class Curve:
    """Points from no summary to the precise one."""

    points: tuple[Point, ...]
    #: maximal rectangles per server
    maximal: float

    @property
    def precise(self) -> Point:
        return self.points[-1]

    def priced(self, unit: Unit, price: float = 1.0) -> dict[float, OperatingPoint]:
        """Returns the curve for the throughput model: T_d is a count × a price, or the measured time."""
        return {
            one.precision: OperatingPoint(routing=getattr(one, unit) * price, hit_ratio=one.hit_ratio)
            for one in self.points
            if not np.isnan(getattr(one, unit))
        }


@lru_cache(maxsize=64)
def price(unit: Unit, way: Way, seed: int) -> float:
    """Returns the seconds per test (or coordinate), fitted to the published Figure 12."""
    if unit == "kernel":
        return 1.0
    found = curve(Setup(servers=3, way=way), seed, (1.0,))
    return ROUTING_PRECISE / float(getattr(found.precise, unit))


@lru_cache(maxsize=64)
def curve(setup: Setup, seed: int, precisions: tuple[float, ...] = FINE) -> Curve:
    """Measures a curve; cached, because several experiments use the same one."""
    rng = np.random.default_rng(seed)
    workload = setup.workload()
    lo, hi = workload.rectangles(rng, setup.servers * setup.per_server)
    points = workload.points(rng, setup.events)
    counted = [Counted(*one, setup.way) for one in _parts(setup, lo, hi, points, seed)]
    nothing = Point(precision=0.0, hit_ratio=1.0, tests=0.0, coordinates=0.0, kernel=0.0)
    found = [nothing]
    for precision in precisions:
        searched = np.array([one.search(precision, points) for one in counted])
        tests, coordinates, hits = searched.mean(axis=0).tolist()
        timed = setup.timed and round(10 * precision, 6).is_integer()
        found.append(
            Point(
                precision=precision,
                hit_ratio=hits,
                tests=tests,
                coordinates=coordinates,
                kernel=_kernel(counted, precision, points) if timed else float("nan"),
            )
        )
    return Curve(tuple(found), float(np.mean([one.summary.count for one in counted])))


def _parts(setup: Setup, lo: Floats, hi: Floats, points: Floats, seed: int) -> list[tuple[Floats, Floats]]:
    if setup.partition == "random":
        # Subscriptions are drawn independently, so any equal shares are random.
        return [(lo[i :: setup.servers], hi[i :: setup.servers]) for i in range(setup.servers)]
    rows = LocalRows(lo, hi)
    wish = PartitionOptions(method=setup.partition, servers=setup.servers, seed=seed)
    parts = partition(rows, wish, points).parts(rows.whole)
    return [(lo[parts == i], hi[parts == i]) for i in range(setup.servers)]


def _kernel(counted: Sequence[Counted], precision: float, points: Floats) -> float:
    router = new_router("bitmap")
    covers = [(column, router.cover(*one.cut(precision))) for column, one in enumerate(counted)]
    return measure(router.bundle(covers), len(counted), points, Effort(seconds=0.1)).routing


class Counted:
    """A summary that counts the tests of a search."""

    def __init__(self, lo: Floats, hi: Floats, way: Way) -> None:
        self.way = way
        self.summary = Summary.build(*maximal(lo, hi), split_only=way.split_only, even=way.even)
        data, n, d = self.summary.to_bytes(), self.summary.count, self.summary.dimensions
        inner, nodes = n - 1, 2 * n - 1
        self._children = np.frombuffer(data, "<u4", 2 * inner, _HEADER).astype(np.int64).reshape(inner, 2)
        at = _HEADER + 8 * inner
        self._lo = np.frombuffer(data, "<f8", d * nodes, at).copy().reshape(nodes, d)
        self._hi = np.frombuffer(data, "<f8", d * nodes, at + 8 * d * nodes).copy().reshape(nodes, d)

    def cut(self, precision: float) -> tuple[Floats, Floats]:
        return self.summary.cut(rectangles(self.summary.count, precision), self.way.by)

    def search(self, precision: float, points: Floats) -> tuple[float, float, float]:
        """Returns tests and coordinates per event, and the share of the events that the cut contains."""
        chosen = np.zeros(len(self._lo), dtype=np.bool_)
        chosen[self.summary.choose(rectangles(self.summary.count, precision), self.way.by)] = True
        waiting = np.empty(len(self._lo) + 2, dtype=np.int64)
        found = _count(self._children, self._lo, self._hi, chosen, points, waiting)
        return found[0] / len(points), found[1] / len(points), found[2] / len(points)


@on_first_use
def _count(
    children: Ints, lo: Floats, hi: Floats, chosen: np.ndarray, points: Floats, waiting: Ints
) -> tuple[int, int, int]:
    tests = 0
    coordinates = 0
    hits = 0
    for i in range(len(points)):
        waiting[0] = 0
        left = 1
        while left > 0:
            left -= 1
            node = waiting[left]
            tests += 1
            inside = True
            for j in range(lo.shape[1]):
                coordinates += 1
                if points[i, j] < lo[node, j] or points[i, j] > hi[node, j]:
                    inside = False
                    break
            if not inside:
                continue
            if chosen[node]:
                hits += 1
                break
            waiting[left] = children[node, 0]
            waiting[left + 1] = children[node, 1]
            left += 2
    return tests, coordinates, hits
