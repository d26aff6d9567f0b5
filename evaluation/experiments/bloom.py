"""Ours: Bloom filters on equality.

How many useless events do 64 bits per node and attribute stop, and what do they cost? Stock quotes: filters
name a symbol, often a venue, and bounds on price, volume or change. The published text proposes Bloom filters
for equality and does not evaluate them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from edn.arrays import Bools, Floats
from edn.summary import Summary, new_router
from edn.tools.bench.cuts import PRECISIONS
from edn.tools.bench.cuts import draw as drawn
from edn.tools.bench.workloads import market
from evaluation.experiment import Claim, Experiment, Outcome, Progress, Series, track
from evaluation.figures import Canvas
from selftune.curve import Effort, measure, rectangles

#: share of the filters that name a symbol; the others name a venue only
NAMED = {"all name a symbol": 1.0, "nine in ten do": 0.9}
PLACEMENTS = {"random": False, "clustered": True}
CELLS = [f"{kind}, {placement}" for kind, placement in product(NAMED, PLACEMENTS)]
COARSE = (0.01, 0.02, 0.05, *PRECISIONS)


def run(seed: int, progress: Progress, *, servers: int, per_server: int, events: int) -> Outcome:
    outcome = Outcome()
    for kind, placement in track(product(NAMED, PLACEMENTS), progress, "{0}, {1}"):
        clustered = PLACEMENTS[placement]
        made = drawn(market(NAMED[kind]), servers, per_server, events, clustered=clustered, seed=seed)
        summaries = [Summary.build(lo, hi) for lo, hi in made.parts]
        precise = _routed(summaries, 1.0, made.points, masked=False)[0]
        for what in ("bounds", "masks"):
            found = [_routed(summaries, p, made.points, masked=what == "masks") for p in COARSE]
            label = f"{kind}, {placement}: {what}"
            outcome.series[label] = Series(COARSE, [float(marks.mean()) for marks, _ in found])
            outcome.series[f"{label}, µs"] = Series(COARSE, [cost for _, cost in found])
            outcome.values[f"{label}: lost"] = float(sum((precise & ~marks).sum() for marks, _ in found))
    return outcome


def _routed(
    summaries: Sequence[Summary], precision: float, points: Floats, *, masked: bool
) -> tuple[Bools, float]:
    """Returns which events go to which server, and microseconds per event for all servers."""
    router = new_router("bitmap")
    covers = []
    for column, summary in enumerate(summaries):
        nodes = summary.choose(rectangles(summary.count, precision))
        masks = summary.masks(nodes) if masked else None
        covers.append((column, router.cover(*summary.bounds(nodes), masks)))
    bundle = router.bundle(covers)
    out = np.zeros((len(points), len(summaries)), dtype=np.bool_)
    bundle.mark(points, out)
    timed = measure(bundle, len(summaries), points, Effort(seconds=0.05))
    return out, 1e6 * timed.routing * len(summaries)


def draw(canvas: Canvas) -> None:
    for panel, cell in zip(canvas.panels(2, 2), CELLS, strict=True):
        panel.labels(f"Quotes: {cell}", "precision", "hit ratio")
        panel.curves({"bounds": "bounds alone", "masks": "with Bloom masks"}, f"{cell}: ")
        panel.axes.set_xscale("log")
        panel.axes.set_ylim(0, 1.05)


def _fewer(outcome: Outcome, cells: Sequence[str], precisions: Sequence[float], share: float) -> list[bool]:
    """Returns whether masks forward at most this share of what bounds alone forward."""
    return [
        outcome.at(f"{cell}: masks", p) <= share * outcome.at(f"{cell}: bounds", p)
        for cell, p in product(cells, precisions)
    ]


EXPERIMENT = Experiment(
    name="bloom",
    text=__doc__,
    sizes={
        "tiny": {"servers": 2, "per_server": 100, "events": 200},
        "quick": {"servers": 10, "per_server": 500, "events": 2000},
        "full": {"servers": 10, "per_server": 500, "events": 10_000},
    },
    seeds={"tiny": 1, "quick": 2, "full": 3},
    run=run,
    draw=draw,
    claims=(
        Claim(
            "No event is lost: masks forward every event that the precise summary forwards.",
            {
                "every event, precision and placement": lambda o: (
                    lost == 0 for name, lost in o.values.items() if name.endswith("lost")
                )
            },
        ),
        Claim(
            "Masks never forward more than bounds alone.",
            {"every precision and placement": lambda o: _fewer(o, CELLS, COARSE, 1.0)},
        ),
        Claim(
            "At a coarse cut (1 %) they stop at least a tenth, where all filters name a symbol.",
            {
                "random and clustered placement": lambda o: _fewer(o, CELLS[:2], (0.01,), 0.9),
                "the same at 10 %": lambda o: _fewer(o, CELLS[:2], (0.1,), 0.9),
            },
            why="A node near the root covers hundreds of symbols, which fill 64 bits. Where filters are "
            "clustered, those for one symbol are under one node already.",
        ),
    ),
)
