"""Ours: a cut that opens what wastes most, beside cuts at a depth."""

from __future__ import annotations

from collections.abc import Sequence

from edn.tools.bench.cuts import PRECISIONS, PUBLISHED, CutQuality, cut_quality
from edn.tools.bench.cuts import draw as drawn
from edn.tools.bench.workloads import Workload, crowd, uniform, zipf
from evaluation.claims import Claim, Reading, share
from evaluation.drawing import Canvas
from evaluation.experiment import Experiment, NetworkSizes, Progress
from evaluation.outcome import Outcome, Series

#: as published, its three measures of volume, and our own tree cut at a depth
LEVELS = (*PUBLISHED, "level")
#: differences of the hit ratio that count as none
TIE = 0.002


def workloads() -> list[Workload]:
    return [uniform(4), uniform(8), crowd(8), zipf(4, 1.0)]


def run(sizes: NetworkSizes, seed: int, progress: Progress) -> Outcome:
    series: dict[str, Series] = {}
    jobs = [(workload, clustered) for workload in workloads() for clustered in (False, True)]
    for done, (workload, clustered) in enumerate(jobs):
        progress(done, len(jobs), f"{workload.name}, {'clustered' if clustered else 'random'}")
        rows = cut_quality(
            drawn(workload, sizes.servers, sizes.per_server, sizes.events, clustered=clustered, seed=seed)
        )
        series.update(
            {_name(row): Series(list(PRECISIONS), [row.hit_ratios[p][0] for p in PRECISIONS]) for row in rows}
        )
    return Outcome({}, series)


def _name(row: CutQuality) -> str:
    return f"{row.workload}, {row.placement}: {row.way}"


def _cells(outcome: Outcome) -> list[str]:
    return sorted({name.rpartition(": ")[0] for name in outcome.series})


def _wins(outcome: Outcome) -> list[float]:
    """Against the best of the cuts by depth in each cell, precise summaries left out: all are the same
    there."""
    return share(
        *(
            outcome.at(f"{cell}: waste", p) <= min(outcome.at(f"{cell}: {way}", p) for way in LEVELS) + TIE
            for cell in _cells(outcome)
            for p in PRECISIONS[:-1]
        )
    )


def _weighted(outcome: Outcome) -> list[float]:
    cells = [cell for cell in _cells(outcome) if cell.startswith("crowd")]
    return share(
        *(
            outcome.at(f"{cell}: weighted", p) <= outcome.at(f"{cell}: waste", p) + TIE
            for cell in cells
            for p in PRECISIONS[:-1]
        )
    )


def draw(canvas: Canvas, outcomes: Sequence[Outcome]) -> None:
    cells = ("uniform d=8, random", "uniform d=8, clustered", "crowd d=8, random", "crowd d=8, clustered")
    for panel, cell in zip(canvas.panels(2, 2), cells, strict=True):
        panel.labels(cell, "precision", "hit ratio")
        for way, label in {
            "split level, plain": "published: split, cut at a depth",
            "level": "our tree, cut at a depth",
            "waste": "our cut",
            "weighted": "our cut, weighted by events seen",
        }.items():
            panel.curve(f"{cell}: {way}", label)
        panel.axes.set_ylim(0, 1.05)


EXPERIMENT = Experiment(
    name="cuts",
    line="ours",
    title="A better cut",
    question="Does opening the node that wastes most let fewer useless events through than a cut at a depth?",
    setting=(
        "Summaries of 10,000 subscriptions each, at random or clustered placement, with as many rectangles "
        "either way. Four kinds of subscriptions and events. The published way is there with three "
        "measures of volume, since it names none. `edn bench cuts` has all workloads and significance."
    ),
    sizes={
        "tiny": NetworkSizes(servers=2, per_server=100, events=200),
        "quick": NetworkSizes(servers=2, per_server=3000, events=2000),
        "full": NetworkSizes(servers=2, per_server=10_000, events=4000),
    },
    run=run,
    draw=draw,
    claims=(
        Claim(
            text="At no precision does our cut let more through than the best of the cuts at a depth.",
            readings=(Reading(f"every workload, placement and precision, up to {TIE:g}", _wins),),
            why=(
                "At a tenth of the rectangles and clustered placement single draws go either way, most of "
                "all where events gather in a corner that nothing in the subscriptions tells of."
            ),
        ),
        Claim(
            text="Where events gather, a cut that has seen events lets fewer through still.",
            readings=(Reading(f"events normal(9.5, 0.25), up to {TIE:g}", _weighted),),
        ),
    ),
)
