"""Ours: A better cut.

Does opening the node that wastes most forward fewer useless events than a cut at a depth? Summaries of 10,000
subscriptions each, with random or clustered placement, and with the same number of rectangles either way.
Four kinds of subscriptions and events. The published way is measured with three measures of volume, because
it names none. `edn bench cuts` has all workloads and the significance.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from edn.tools.bench.cuts import PRECISIONS, PUBLISHED, cut_quality
from edn.tools.bench.cuts import draw as drawn
from edn.tools.bench.workloads import crowd, uniform, zipf
from evaluation.experiment import Claim, Experiment, Outcome, Progress, Series, track
from evaluation.figures import Canvas

#: the published way with three measures of volume, and our own tree cut at a depth
LEVELS = (*PUBLISHED, "level")
#: differences of the hit ratio that count as none
TIE = 0.002


def run(seed: int, progress: Progress, *, servers: int, per_server: int, events: int) -> Outcome:
    outcome = Outcome()
    workloads = (uniform(4), uniform(8), crowd(8), zipf(4, 1.0))
    for workload, clustered in track(product(workloads, (False, True)), progress, "{0.name}"):
        for row in cut_quality(drawn(workload, servers, per_server, events, clustered=clustered, seed=seed)):
            hits = [row.hit_ratios[p][0] for p in PRECISIONS]
            outcome.series[f"{row.workload}, {row.placement}: {row.way}"] = Series(PRECISIONS, hits)
    return outcome


def _cells(outcome: Outcome) -> list[str]:
    return sorted({name.rpartition(": ")[0] for name in outcome.series})


def _wins(outcome: Outcome) -> Iterator[bool]:
    """Compares with the best cut at a depth in each cell; precise summaries are the same for all."""
    for cell, p in product(_cells(outcome), PRECISIONS[:-1]):
        best = min(outcome.at(f"{cell}: {way}", p) for way in LEVELS)
        yield outcome.at(f"{cell}: waste", p) <= best + TIE


def _weighted(outcome: Outcome) -> Iterator[bool]:
    cells = [cell for cell in _cells(outcome) if cell.startswith("crowd")]
    for cell, p in product(cells, PRECISIONS[:-1]):
        yield outcome.at(f"{cell}: weighted", p) <= outcome.at(f"{cell}: waste", p) + TIE


def draw(canvas: Canvas) -> None:
    cells = ("uniform d=8, random", "uniform d=8, clustered", "crowd d=8, random", "crowd d=8, clustered")
    ways = {
        "split level, plain": "published: split, cut at a depth",
        "level": "our tree, cut at a depth",
        "waste": "our cut",
        "weighted": "our cut, weighted by events seen",
    }
    for panel, cell in zip(canvas.panels(2, 2), cells, strict=True):
        panel.labels(cell, "precision", "hit ratio")
        panel.curves(ways, f"{cell}: ")
        panel.axes.set_ylim(0, 1.05)


EXPERIMENT = Experiment(
    name="cuts",
    text=__doc__,
    sizes={
        "tiny": {"servers": 2, "per_server": 100, "events": 200},
        "quick": {"servers": 2, "per_server": 3000, "events": 2000},
        "full": {"servers": 2, "per_server": 10_000, "events": 4000},
    },
    run=run,
    draw=draw,
    claims=(
        Claim(
            "At no precision does our cut forward more than the best of the cuts at a depth.",
            {f"every workload, placement and precision, up to {TIE:g}": _wins},
            why="At a tenth of the rectangles and clustered placement single draws go either way, most of "
            "all where events concentrate in a corner that the subscriptions do not indicate.",
        ),
        Claim(
            "Where events concentrate, a cut that has seen events forwards even fewer.",
            {f"events normal(9.5, 0.25), up to {TIE:g}": _weighted},
        ),
    ),
)
