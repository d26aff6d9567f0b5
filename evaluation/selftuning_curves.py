"""Hit ratio and routing cost at every precision, from real summaries: what the simulated network obeys.

The cost is counted in rectangle tests, as the published T_d was a tree's and not today's kernel's: the cut
is searched from the root of its hierarchy, depth first, until one of its rectangles contains the event.
Beside it stands the CPU time of our own router on the same cuts.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from edn.bench.workloads import Floats, crowd, uniform
from edn.compiling import on_first_use
from edn.summary import Maximal, Summary, new_router
from edn.summary.hierarchy import By
from edn.summary.kernels import Ints
from selftune.curve import GRID, Effort, measure, rectangles

#: bytes before the children in a summary's own format
_HEADER = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The published setting by default."""

    servers: int = 10
    dimensions: int = 8
    per_server: int = 10_000
    events: int = 2000
    seed: int = 0
    #: how summaries are cut: `waste` or `level`
    cut: By = "waste"


class Point(msgspec.Struct, frozen=True):
    """One precision under one distribution of events, the mean over all servers."""

    precision: float
    hit_ratio: float
    #: rectangle tests an event and server
    tests: float
    #: seconds of CPU an event and server, of our own router
    kernel: float


Curve = dict[float, Point]


class Curves(msgspec.Struct, frozen=True):
    """Before and after the published change of the events' distribution."""

    uniform: Curve
    normal: Curve


@on_first_use
def _count_tests(
    children: Ints, lo: Floats, hi: Floats, chosen: np.ndarray, points: Floats, waiting: Ints
) -> tuple[int, int]:
    tests = 0
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
    return tests, hits


class Counted:
    """A summary whose cuts can be searched with a count of the tests."""

    def __init__(self, summary: Summary) -> None:
        self.summary = summary
        data, n, d = summary.to_bytes(), summary.count, summary.dimensions
        inner, nodes = n - 1, 2 * n - 1
        self._children = np.frombuffer(data, "<u4", 2 * inner, _HEADER).astype(np.int64).reshape(inner, 2)
        at = _HEADER + 8 * inner
        self._lo = np.frombuffer(data, "<f8", d * nodes, at).copy().reshape(nodes, d)
        self._hi = np.frombuffer(data, "<f8", d * nodes, at + 8 * d * nodes).copy().reshape(nodes, d)

    def search(self, precision: float, by: By, points: Floats) -> tuple[float, float]:
        """Tests an event, and the share of the events that a cut contains."""
        chosen = np.zeros(len(self._lo), dtype=np.bool_)
        chosen[self.summary.choose(rectangles(self.summary.count, precision), by)] = True
        waiting = np.empty(len(self._lo) + 2, dtype=np.int64)
        tests, hits = _count_tests(self._children, self._lo, self._hi, chosen, points, waiting)
        return tests / len(points), hits / len(points)


def curves(setup: Setup) -> Curves:
    """Draw the subscriptions once and ask about both distributions of events."""
    rng = np.random.default_rng(setup.seed)
    even, crowded = uniform(setup.dimensions), crowd(setup.dimensions)
    counted = []
    for _ in range(setup.servers):
        lo, hi = even.rectangles(rng, setup.per_server)
        maximal = Maximal(setup.dimensions)
        maximal.insert(range(len(lo)), lo, hi)
        counted.append(Counted(Summary.build(*maximal.rects())))
    samples = even.points(rng, setup.events), crowded.points(rng, setup.events)
    router = new_router("bitmap")
    found: tuple[Curve, Curve] = ({}, {})
    for precision in GRID:
        if precision == 0:
            for curve in found:
                curve[precision] = Point(precision=precision, hit_ratio=1.0, tests=0.0, kernel=0.0)
            continue
        covers = [
            (column, router.cover(*one.summary.cut(rectangles(one.summary.count, precision), setup.cut)))
            for column, one in enumerate(counted)
        ]
        bundle = router.bundle(covers)
        for curve, points in zip(found, samples, strict=True):
            searched = [one.search(precision, setup.cut, points) for one in counted]
            timed = measure(bundle, len(counted), points, Effort(seconds=0.1))
            curve[precision] = Point(
                precision=precision,
                hit_ratio=float(np.mean([hits for _, hits in searched])),
                tests=float(np.mean([tests for tests, _ in searched])),
                kernel=timed.routing,
            )
    return Curves(*found)
