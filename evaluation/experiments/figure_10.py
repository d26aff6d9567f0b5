"""Figure 10: Throughput with and without offline partitioning.

How does offline partitioning change the throughput, and do imprecise summaries still pay off then? 100,000
rectangles in 8 dimensions on 10 servers, T_l = 100 µs; offline R-tree and random partitioning.
"""

from __future__ import annotations

from typing import Any

from evaluation.cut_cost import Setup
from evaluation.experiment import Claim, Experiment, Outcome, Progress, Series, track, values
from evaluation.figures import Canvas
from evaluation.relative_throughput import FIRST, modelled

NAMES = ("tests × the constant of Figure 12", "our cut, tests × such a constant", "our own router's time")


def run(seed: int, progress: Progress, **network: Any) -> Outcome:
    outcome = Outcome()
    for name in track(NAMES, progress, "{0}"):
        plain, parted = (
            modelled(Setup(**network, partition=partition, timed=True), name, seed)
            for partition in ("random", "rtree")
        )
        if name == FIRST:
            own = parted.relative
            factor = parted.model.throughput(1.0) / plain.model.throughput(1.0)
            outcome.series["random, by its own precise"] = plain.relative
            outcome.series["rtree, by its own precise"] = own
            outcome.series["rtree, by random's precise"] = Series(own.x, [factor * y for y in own.y])
        hit_ratio = parted.measured.precise.hit_ratio / plain.measured.precise.hit_ratio
        outcome.values[f"R, {name}"] = hit_ratio
        outcome.values[f"T_d, {name}"] = parted.routing / plain.routing
        outcome.values[f"best, {name}"] = parted.throughput / plain.throughput
        outcome.values[f"RTP_p, {name}"] = parted.over_precise / plain.over_precise
    return outcome


def draw(canvas: Canvas) -> None:
    left, right = canvas.panels(2)
    left.labels(
        "Figure 10: with and without offline partitioning",
        "precision",
        "throughput ÷ that of precise summaries",
    )
    left.curve("rtree, by random's precise", "partitioned ÷ precise summaries of random")
    left.curve("random, by its own precise", "random")
    left.curve("rtree, by its own precise", "partitioned ÷ its own precise summaries")
    right.labels("Partitioned ÷ random", "", "ratio")
    what = {"R": "hit ratio", "T_d": "routing time", "best": "best throughput", "RTP_p": "gain over precise"}
    right.bars(list(what.values()), [f"{key}, {FIRST}" for key in what])
    right.stars("published", range(4), (0.5, 0.5, 2.0, 1.0))


EXPERIMENT = Experiment(
    name="figure-10",
    text=__doc__,
    sizes={
        "tiny": {"servers": 3, "per_server": 200, "events": 200},
        "quick": {"servers": 10, "per_server": 10_000, "events": 1000},
        "full": {"servers": 10, "per_server": 10_000, "events": 2000},
    },
    seeds={"tiny": 1, "quick": 1, "full": 2},
    run=run,
    draw=draw,
    claims=(
        Claim(
            "Partitioning halves the routing time.",
            values(NAMES, "T_d"),
            paper=0.5,
            partly=lambda ours: ours < 1,
            why="Summaries of similar rectangles are searched faster; how much faster depends on the tree.",
        ),
        Claim(
            "It halves the hit ratio.",
            values(NAMES, "R"),
            paper=0.5,
            partly=lambda ours: ours < 1,
            why="The split is the published one. With uniform rectangles in 8 dimensions nine cuts cannot "
            "separate more: the hit ratio of precise summaries falls by some 40 % instead of 50 %.",
        ),
        Claim(
            "It doubles the best throughput.",
            values(NAMES, "best"),
            paper=2.0,
            partly=lambda ours: ours > 1,
        ),
        Claim(
            "The gain of imprecise over precise summaries stays the same (ratio 1).",
            values(NAMES, "RTP_p"),
            paper=1.0,
        ),
    ),
)
