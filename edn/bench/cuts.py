"""How much a cut lets through: hit ratios of all ways to cut, over precisions, workloads and placements.

The hit ratio is events forwarded ÷ (events published × servers): the lower the better, and no cut is better
than the precise summary. Ten servers share the subscriptions, either at random or *clustered*: neighbours
in one hierarchy over all of them share a server, as a good placement would have it. All ways are asked
about the same events; `weighted` has seen others of the same distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import msgspec
import numpy as np

from edn.bench.report import Progress
from edn.bench.workloads import Floats, Workload, crowd, market, uniform, zipf, zipf_both
from edn.summary import Maximal, Summary, new_router, tree
from edn.summary.kernels import Words
from edn.summary.measure import unit_rects
from edn.summary.selection import most_selective, select

#: `split level` is how it was first published: a tree split from the top and cut at a depth. `level` cuts
#: our own hierarchy so, `waste` and `weighted` in its own order, `bloom` by waste and with masks for
#: equality
WAYS = ("split level", "level", "waste", "weighted", "bloom")
PRECISIONS = (0.1, 0.25, 0.5, 1.0)
COLUMNS = ("workload", "placement", "maximal", "cut by", *(f"{p:g}" for p in PRECISIONS))
SELECTION_COLUMNS = ("workload", "placement", "attributes", "maximal", "hit ratio")

SERVERS = 10
#: of each server
SUBSCRIPTIONS = 10_000
EVENTS = 5_000
#: events that a weighted cut has seen: as many as a routing table remembers
SEEN = 2048


class Selection(msgspec.Struct, frozen=True):
    """One line of the table of summaries over a few attributes."""

    workload: str
    placement: str
    attributes: int
    #: maximal rectangles a server, on average
    maximal: float
    hit_ratio: float

    def cells(self) -> list[str]:
        return [
            self.workload,
            self.placement,
            str(self.attributes),
            f"{self.maximal:.0f}",
            f"{self.hit_ratio:.4f}",
        ]


class CutQuality(msgspec.Struct, frozen=True):
    """One line of the table."""

    workload: str
    placement: str
    #: maximal rectangles a server, on average
    maximal: float
    way: str
    #: hit ratio by precision
    hit_ratio: dict[float, float]

    def cells(self) -> list[str]:
        ratios = [f"{ratio:.4f}" for ratio in self.hit_ratio.values()]
        return [self.workload, self.placement, f"{self.maximal:.0f}", self.way, *ratios]


def workloads() -> list[Workload]:
    return [uniform(4), uniform(8), crowd(8), zipf(4, 1.0), zipf_both(4, 1.0), market()]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A workload as it was drawn: what the servers hold, and what is asked."""

    workload: Workload
    placement: str
    #: the maximal rectangles of each server
    parts: list[tuple[Floats, Floats]]
    points: Floats
    #: events of the same distribution that came before
    seen: Floats


def draw(
    workload: Workload, servers: int, subscriptions: int, events: int, *, clustered: bool, seed: int
) -> Drawn:
    rng = np.random.default_rng(seed)
    lo, hi = workload.rectangles(rng, servers * subscriptions)
    order = neighbourhood(lo, hi) if clustered else np.arange(len(lo))
    parts = []
    for part in np.array_split(order, servers):
        maximal = Maximal(workload.dimensions)
        maximal.insert(range(len(part)), lo[part], hi[part])
        parts.append(maximal.rects())
    return Drawn(
        workload, _PLACEMENT[clustered], parts, workload.points(rng, events), workload.points(rng, SEEN)
    )


def cut_quality(drawn: Drawn) -> list[CutQuality]:
    """Hit ratios of every way to cut, at every precision."""
    ours = [Summary.build(lo, hi) for lo, hi in drawn.parts]
    split = [Summary.build(lo, hi, split_only=True) for lo, hi in drawn.parts]
    maximal = fmean(summary.count for summary in ours)
    rows = []
    for way in WAYS:
        summaries = split if way == "split level" else ours
        ratios = {p: fmean(_hits(summary, p, way, drawn) for summary in summaries) for p in PRECISIONS}
        rows.append(CutQuality(drawn.workload.name, drawn.placement, maximal, way, ratios))
    return rows


def selection_quality(drawn: Drawn) -> list[Selection]:
    """Precise summaries of the most selective attributes, from one of them to all."""
    rows = []
    for attributes in range(1, drawn.workload.dimensions + 1):
        chosen = [select(lo, hi, most_selective(lo, hi, attributes)) for lo, hi in drawn.parts]
        hits = fmean(_routed(drawn.points, lo, hi) for lo, hi in chosen)
        maximal = fmean(len(lo) for lo, _ in chosen)
        rows.append(Selection(drawn.workload.name, drawn.placement, attributes, maximal, hits))
    return rows


_PLACEMENT = {False: "random", True: "clustered"}


def neighbourhood(lo: Floats, hi: Floats) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Rectangles in the order in which a walk through one hierarchy over all of them meets them."""
    n = len(lo)
    a, b = unit_rects(lo, hi)
    children = tree.grow_tree(a, b, 1024)
    order: list[int] = []
    waiting = [2 * n - 2]
    while waiting:
        node = waiting.pop()
        if node < n:
            order.append(node)
        else:
            waiting += children[node - n].tolist()
    return np.array(order)


def _hits(summary: Summary, precision: float, way: str, drawn: Drawn) -> float:
    k = max(1, int(np.ceil(precision * summary.count - 1e-9)))
    if way.endswith("level"):
        nodes = summary.choose(k, by="level")
    else:
        nodes = summary.choose(k, weights=drawn.seen if way == "weighted" else None)
    return _routed(drawn.points, *summary.bounds(nodes), summary.masks(nodes) if way == "bloom" else None)


def _routed(points: Floats, lo: Floats, hi: Floats, masks: Words | None = None) -> float:
    out = np.zeros((len(points), 1), dtype=np.bool_)
    router = new_router("bitmap")
    router.bundle([(0, router.cover(lo, hi, masks))]).mark(points, out)
    return float(out.mean())


def run(*, quick: bool, seed: int, progress: Progress) -> tuple[list[CutQuality], list[Selection]]:
    """Both tables, over all workloads and placements."""
    servers, subscriptions, events = (3, 200, 200) if quick else (SERVERS, SUBSCRIPTIONS, EVENTS)
    cuts: list[CutQuality] = []
    selections: list[Selection] = []
    for workload in workloads():
        for clustered in (False, True):
            progress.say(f"{workload.name}, {_PLACEMENT[clustered]} placement")
            drawn = draw(workload, servers, subscriptions, events, clustered=clustered, seed=seed)
            cuts += cut_quality(drawn)
            selections += selection_quality(drawn)
    return cuts, selections
