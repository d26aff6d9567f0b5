"""Hit ratios of all ways to cut a summary, over precisions, workloads and placements.

The hit ratio is events forwarded ÷ (events published × servers): lower is better, and no cut is better than
the precise summary. Ten servers share the subscriptions, at random or *clustered*: neighbours in one
hierarchy over all of them share a server, as with a good placement. All ways route the same events;
`weighted` has seen other events of the same distribution.

Several seeds draw everything again. A cell is the mean over them, with its standard deviation; ways are
compared seed by seed, because a draw that is hard is hard for all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, stdev

import msgspec
import numpy as np

from edn.arrays import Floats, Words
from edn.summary import Maximal, Summary, new_router, tree
from edn.summary.measure import EVEN_SHARE, unit_rects
from edn.summary.selection import most_selective, select
from edn.tools.bench.report import Cell, Cells, Progress, print_rows
from edn.tools.bench.workloads import Workload, crowd, market, uniform, zipf, zipf_both
from edn.tools.console import show_json

#: the published way: a tree split from the top and cut at a depth. It does not define the volume where
#: attributes have no common scale, so there are three variants, by the share of events that the measure
#: expects anywhere: plain volumes, our own measure, borders alone
PUBLISHED = {"split level, plain": 1.0, "split level": EVEN_SHARE, "split level, borders": 0.0}
#: `level` cuts our own hierarchy at a depth, `waste` and `weighted` in its own order, `bloom` by waste with
#: masks for equality
WAYS = (*PUBLISHED, "level", "waste", "weighted", "bloom")
PRECISIONS = (0.1, 0.25, 0.5, 1.0)
PLACES: Cells = (("workload", "{r.workload}"), ("placement", "{r.placement}"))
SELECTION_COLUMNS: Cells = (
    *PLACES,
    ("attributes", "{r.attributes}"),
    ("maximal", "{r.maximal:.0f}"),
    ("hit ratio", "{r.hit_ratio:.4f}"),
)
COMPARISON_COLUMNS: Cells = (
    *PLACES,
    ("precision", "{r.precision:g}"),
    ("best other", "{r.other}"),
    ("its", lambda r: f"{fmean(r.others):.4f}"),
    ("waste", lambda r: f"{fmean(r.ours):.4f}"),
    ("difference", lambda r: f"{fmean(r.differences):+.4f} ± {r.error:.4f}"),
    ("", "{r.verdict}"),
)

SERVERS = 10
#: per server
SUBSCRIPTIONS = 10_000
EVENTS = 5_000
#: events that a weighted cut has seen: as many as a routing table keeps
SEEN = 2048


class Selection(msgspec.Struct, frozen=True):
    """One row of the table of summaries over a few attributes."""

    workload: str
    placement: str
    attributes: int
    #: mean of maximal rectangles per server
    maximal: float
    hit_ratio: float


class CutQuality(msgspec.Struct, frozen=True):
    """One row of the table."""

    workload: str
    placement: str
    #: mean of maximal rectangles per server
    maximal: float
    way: str
    #: by precision: the hit ratio of each seed
    hit_ratios: dict[float, list[float]]

    def at(self, precision: float) -> str:
        """Formats the mean over the seeds, and the deviation of several."""
        ratios = self.hit_ratios[precision]
        return f"{fmean(ratios):.4f}" + (f" ± {stdev(ratios):.4f}" if len(ratios) > 1 else "")


class Comparison(msgspec.Struct, frozen=True):
    """The default way compared with the best of the level cuts, in one cell of the table."""

    workload: str
    placement: str
    precision: float
    #: the level cut with the lowest mean
    other: str
    others: list[float]
    ours: list[float]

    @property
    def differences(self) -> list[float]:
        """Per seed; below zero the default forwards fewer events."""
        return [mine - its for mine, its in zip(self.ours, self.others, strict=True)]

    @property
    def error(self) -> float:
        """Standard error of the mean difference."""
        spread = stdev(self.differences) if len(self.ours) > 1 else 0.0
        return spread / math.sqrt(len(self.ours))

    @property
    def verdict(self) -> str:
        """A tie is a mean difference of at most two standard errors."""
        mean = fmean(self.differences)
        if abs(mean) <= 2 * self.error or not mean:
            return "tie"
        return "win" if mean < 0 else "loss"

    def to_json(self) -> dict[str, object]:
        return {
            **msgspec.structs.asdict(self),
            "difference": fmean(self.differences),
            "error": self.error,
            "verdict": self.verdict,
        }


def _ratio_column(precision: float) -> tuple[str, Cell]:
    return f"{precision:g}", lambda r: r.at(precision)


CUT_COLUMNS: Cells = (
    *PLACES,
    ("maximal", "{r.maximal:.0f}"),
    ("cut by", "{r.way}"),
    *(_ratio_column(precision) for precision in PRECISIONS),
)


def workloads() -> list[Workload]:
    return [uniform(4), uniform(8), crowd(8), zipf(4, 1.0), zipf_both(4, 1.0), market()]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Subscriptions and events drawn from a workload."""

    workload: Workload
    placement: str
    #: the maximal rectangles of each server
    parts: list[tuple[Floats, Floats]]
    points: Floats
    #: earlier events of the same distribution
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
    """Measures every way to cut, at every precision."""
    ours = [Summary.build(lo, hi) for lo, hi in drawn.parts]
    maximal = fmean(summary.count for summary in ours)
    rows = []
    for way in WAYS:
        summaries = ours
        if way in PUBLISHED:
            summaries = [
                Summary.build(lo, hi, split_only=True, even=PUBLISHED[way]) for lo, hi in drawn.parts
            ]
        ratios = {p: [fmean(_hits(summary, p, way, drawn) for summary in summaries)] for p in PRECISIONS}
        rows.append(CutQuality(drawn.workload.name, drawn.placement, maximal, way, ratios))
    return rows


def over_seeds(runs: list[list[CutQuality]]) -> list[CutQuality]:
    """Merges the tables of several seeds."""
    return [
        CutQuality(
            rows[0].workload,
            rows[0].placement,
            fmean(row.maximal for row in rows),
            rows[0].way,
            {p: [ratio for row in rows for ratio in row.hit_ratios[p]] for p in rows[0].hit_ratios},
        )
        for rows in zip(*runs, strict=True)
    ]


def compare(rows: list[CutQuality]) -> list[Comparison]:
    """Compares the default way with the best of the cuts by level, cell by cell."""
    cells: dict[tuple[str, str], dict[str, CutQuality]] = {}
    for row in rows:
        cells.setdefault((row.workload, row.placement), {})[row.way] = row
    comparisons = []
    for (workload, placement), ways in cells.items():
        for p in PRECISIONS[:-1]:
            levels = {way: row.hit_ratios[p] for way, row in ways.items() if way in (*PUBLISHED, "level")}
            best = min(levels, key=lambda way: fmean(levels[way]))
            ours = ways["waste"].hit_ratios[p]
            comparisons.append(Comparison(workload, placement, p, best, levels[best], ours))
    return comparisons


def selection_quality(drawn: Drawn) -> list[Selection]:
    """Measures precise summaries of the most selective attributes, from one to all."""
    rows = []
    for attributes in range(1, drawn.workload.dimensions + 1):
        chosen = [select(lo, hi, most_selective(lo, hi, attributes)) for lo, hi in drawn.parts]
        hits = fmean(_routed(drawn.points, lo, hi) for lo, hi in chosen)
        maximal = fmean(len(lo) for lo, _ in chosen)
        rows.append(Selection(drawn.workload.name, drawn.placement, attributes, maximal, hits))
    return rows


_PLACEMENT = {False: "random", True: "clustered"}


def neighbourhood(lo: Floats, hi: Floats) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Returns rectangles in the order of a walk through one hierarchy over all of them."""
    n = len(lo)
    # By borders alone, so that the placement does not depend on the measure of the summaries.
    a, b = unit_rects(lo, hi, even=0.0)
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
    if way in PUBLISHED or way == "level":
        nodes = summary.choose(k, by="level")
    else:
        nodes = summary.choose(k, weights=drawn.seen if way == "weighted" else None)
    return _routed(drawn.points, *summary.bounds(nodes), summary.masks(nodes) if way == "bloom" else None)


def _routed(points: Floats, lo: Floats, hi: Floats, masks: Words | None = None) -> float:
    out = np.zeros((len(points), 1), dtype=np.bool_)
    router = new_router("bitmap")
    router.bundle([(0, router.cover(lo, hi, masks))]).mark(points, out)
    return float(out.mean())


class Tables(msgspec.Struct, frozen=True):
    seeds: list[int]
    cuts: list[CutQuality]
    comparisons: list[Comparison]
    #: of a few attributes
    selections: list[Selection]


def show(tables: Tables, *, as_json: bool) -> None:
    if as_json:
        compared = [comparison.to_json() for comparison in tables.comparisons]
        show_json({**msgspec.structs.asdict(tables), "comparisons": compared})
        return
    print_rows("Hit ratio by precision", CUT_COLUMNS, tables.cuts)
    title = "The default beside the best cut by level, difference ± standard error"
    print_rows(title, COMPARISON_COLUMNS, tables.comparisons)
    print_rows("Precise summaries of a few attributes", SELECTION_COLUMNS, tables.selections)


def run(*, quick: bool, seeds: list[int], progress: Progress) -> Tables:
    """Measures all workloads and placements; summaries of a few attributes for the first seed only."""
    servers, subscriptions, events = (3, 200, 200) if quick else (SERVERS, SUBSCRIPTIONS, EVENTS)
    cuts: list[CutQuality] = []
    selections: list[Selection] = []
    for workload in workloads():
        for clustered in (False, True):
            runs = []
            for seed in seeds:
                progress.say(f"{workload.name}, {_PLACEMENT[clustered]} placement, seed {seed}")
                drawn = draw(workload, servers, subscriptions, events, clustered=clustered, seed=seed)
                runs.append(cut_quality(drawn))
                if seed == seeds[0]:
                    selections += selection_quality(drawn)
            cuts += over_seeds(runs)
    return Tables(seeds, cuts, compare(cuts), selections)
