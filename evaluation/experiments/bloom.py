"""Ours: Bloom filters on equality attributes, as a narrowing of a cut."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edn.arrays import Floats
from edn.summary import Summary, new_router
from edn.tools.bench.cuts import PRECISIONS
from edn.tools.bench.cuts import draw as drawn
from edn.tools.bench.workloads import market
from evaluation.claims import Claim, Reading, share
from evaluation.drawing import Canvas
from evaluation.experiment import Experiment, NetworkSizes, Progress
from evaluation.outcome import Outcome, Series
from selftune.curve import Effort, measure, rectangles

#: share of the filters that name a symbol; the rest ask for a venue only
NAMED = {"all name a symbol": 1.0, "nine in ten do": 0.9}
PLACEMENTS = {"random": False, "clustered": True}
COARSE = (0.01, 0.02, 0.05, *PRECISIONS)


def run(sizes: NetworkSizes, seed: int, progress: Progress) -> Outcome:
    values: dict[str, float] = {}
    series: dict[str, Series] = {}
    jobs = [(kind, placement) for kind in NAMED for placement in PLACEMENTS]
    for done, (kind, placement) in enumerate(jobs):
        progress(done, len(jobs), f"{kind}, {placement}")
        made = drawn(
            market(NAMED[kind]),
            sizes.servers,
            sizes.per_server,
            sizes.events,
            clustered=PLACEMENTS[placement],
            seed=seed,
        )
        summaries = [Summary.build(lo, hi) for lo, hi in made.parts]
        name = f"{kind}, {placement}"
        for masked in (False, True):
            found = [_routed(summaries, p, made.points, masked=masked) for p in COARSE]
            label = f"{name}: {'masks' if masked else 'bounds'}"
            series[label] = Series(list(COARSE), [float(marks.mean()) for marks, _ in found])
            series[f"{label}, µs"] = Series(list(COARSE), [cost for _, cost in found])
            precise = _routed(summaries, 1.0, made.points, masked=False)[0]
            values[f"{label}: lost"] = float(sum((precise & ~marks).sum() for marks, _ in found))
    return Outcome(values, series)


def _routed(
    summaries: Sequence[Summary], precision: float, points: Floats, *, masked: bool
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.bool_]], float]:
    """Which events go to which server, and microseconds an event for all of them."""
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


def draw(canvas: Canvas, outcomes: Sequence[Outcome]) -> None:
    panels = canvas.panels(2, 2)
    cells = [f"{kind}, {placement}" for kind in NAMED for placement in PLACEMENTS]
    for panel, cell in zip(panels, cells, strict=True):
        panel.labels(f"Quotes: {cell}", "precision", "hit ratio")
        panel.curve(f"{cell}: bounds", "bounds alone")
        panel.curve(f"{cell}: masks", "with Bloom masks")
        panel.axes.set_xscale("log")
        panel.axes.set_ylim(0, 1.05)


def _no_more(outcome: Outcome) -> list[float]:
    return share(
        *(
            outcome.at(f"{kind}, {placement}: masks", p) <= outcome.at(f"{kind}, {placement}: bounds", p)
            for kind in NAMED
            for placement in PLACEMENTS
            for p in COARSE
        )
    )


def _fewer(outcome: Outcome, precision: float) -> list[float]:
    """Some of what bounds alone let through, where all name a symbol."""
    cells = [f"all name a symbol, {placement}" for placement in PLACEMENTS]
    return share(
        *(
            outcome.at(f"{cell}: masks", precision) < 0.9 * outcome.at(f"{cell}: bounds", precision)
            for cell in cells
        )
    )


EXPERIMENT = Experiment(
    name="bloom",
    line="ours",
    title="Bloom filters on equality",
    question="How many useless events do 64 bits a node and attribute keep back, and what do they cost?",
    setting=(
        "Stock quotes: filters name a symbol, often a venue, and bounds on price, volume or change. The "
        "published text proposes Bloom filters for equality and does not evaluate them."
    ),
    sizes={
        "tiny": NetworkSizes(servers=2, per_server=100, events=200),
        "quick": NetworkSizes(servers=10, per_server=500, events=2000),
        "full": NetworkSizes(servers=10, per_server=500, events=10_000),
    },
    seeds={"tiny": 1, "quick": 2, "full": 3},
    run=run,
    draw=draw,
    claims=(
        Claim(
            text="Nothing is lost: what the precise summary forwards is forwarded with masks, too.",
            readings=(
                Reading(
                    "every event, precision and placement",
                    lambda o: share(*(lost == 0 for name, lost in o.values.items() if name.endswith("lost"))),
                ),
            ),
        ),
        Claim(
            text="Masks never let more through than bounds alone.",
            readings=(Reading("every precision and placement", _no_more),),
        ),
        Claim(
            text="At a coarse cut (1 %) they keep back at least a tenth, where all filters name a symbol.",
            readings=(
                Reading("random and clustered placement", lambda o: _fewer(o, 0.01)),
                Reading("the same at 10 %", lambda o: _fewer(o, 0.1)),
            ),
            why=(
                "A node near the root stands for hundreds of symbols, and 64 bits are full then; where "
                "filters are clustered, those for one symbol lie under one node already."
            ),
        ),
    ),
)
