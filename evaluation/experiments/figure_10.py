"""Figure 10: throughput with and without offline partitioning."""

from __future__ import annotations

from collections.abc import Sequence

from evaluation.claims import Claim, Number, values
from evaluation.drawing import Canvas
from evaluation.experiment import Experiment, NetworkSizes, Progress
from evaluation.outcome import Outcome, Series
from evaluation.relative import READINGS, best, modelled, relative
from evaluation.searching import Setup

NAMES = ("tests × the constant of Figure 12", "our cut, tests × such a constant", "our own router's time")
FIRST = NAMES[0]


def run(sizes: NetworkSizes, seed: int, progress: Progress) -> Outcome:
    numbers: dict[str, float] = {}
    series: dict[str, Series] = {}
    for done, name in enumerate(NAMES):
        found = {}
        for turn, partition in enumerate(("random", "rtree")):
            progress(2 * done + turn, 2 * len(NAMES), f"{partition}, {name}")
            setup = Setup(**sizes.network, partition=partition, timed=True)
            model, measured = modelled(setup, READINGS[name], seed)
            found[partition] = (model, measured.precise.hit_ratio, best(model))
            if name == FIRST:
                series[f"{partition}, by its own precise"] = relative(model)
        (plain, hits, at), (parted, parted_hits, parted_at) = found["random"], found["rtree"]
        if name == FIRST:
            factor = parted.throughput(1.0) / plain.throughput(1.0)
            own = series["rtree, by its own precise"]
            series["rtree, by random's precise"] = Series(own.x, [factor * y for y in own.y])
        numbers[f"R, {name}"] = parted_hits / hits
        numbers[f"T_d, {name}"] = parted.curve[1.0].routing / plain.curve[1.0].routing
        numbers[f"best, {name}"] = parted.throughput(parted_at.precision) / plain.throughput(at.precision)
        numbers[f"RTP_p, {name}"] = parted_at.over_precise / at.over_precise
    return Outcome(numbers, series)


def draw(canvas: Canvas, outcomes: Sequence[Outcome]) -> None:
    left, right = canvas.panels(2)
    left.labels(
        "Figure 10: with and without offline partitioning",
        "precision",
        "throughput ÷ that of precise summaries",
    )
    left.curve("rtree, by random's precise", "partitioned, beside random's precise")
    left.curve("random, by its own precise", "random")
    left.curve("rtree, by its own precise", "partitioned, beside its own precise")
    right.labels("Partitioned ÷ random", "", "ratio")
    what = {"R": "hit ratio", "T_d": "routing time", "best": "best throughput", "RTP_p": "gain over precise"}
    right.bars(list(what.values()), [f"{key}, {FIRST}" for key in what])
    for place, published in enumerate((0.5, 0.5, 2.0, 1.0)):
        right.axes.plot([place], [published], "k*", markersize=11, label="published" if not place else None)
    right.legend_inside()


EXPERIMENT = Experiment(
    name="figure-10",
    line="Figure 10",
    title="Throughput with and without offline partitioning",
    question=(
        "What does offline partitioning do to the throughput, and are imprecise summaries still worth it "
        "then?"
    ),
    setting="100,000 rectangles in 8 dimensions on 10 servers, T_l = 100 µs; offline R-tree beside random.",
    sizes={
        "tiny": NetworkSizes(servers=3, per_server=200, events=200),
        "quick": NetworkSizes(servers=10, per_server=10_000, events=1000),
        "full": NetworkSizes(servers=10, per_server=10_000, events=2000),
    },
    seeds={"tiny": 1, "quick": 1, "full": 2},
    run=run,
    draw=draw,
    claims=(
        Claim(
            text="Partitioning halves the routing time.",
            paper=Number(0.5, "it falls", lambda ours: ours < 1),
            readings=values(NAMES, "T_d"),
            why="Summaries of similar rectangles are searched faster; how much, depends on the tree.",
        ),
        Claim(
            text="It halves the hit ratio.",
            paper=Number(0.5, "it falls", lambda ours: ours < 1),
            readings=values(NAMES, "R"),
            why=(
                "The split is the published one, and with even rectangles in 8 dimensions nine cuts cannot "
                "separate more: the hit ratio of precise summaries falls by some 40 % instead of 50 %."
            ),
        ),
        Claim(
            text="It doubles the best throughput.",
            paper=Number(2.0, "it rises", lambda ours: ours > 1),
            readings=values(NAMES, "best"),
        ),
        Claim(
            text="The gain of imprecise over precise summaries stays the same (ratio 1).",
            paper=Number(1.0),
            readings=values(NAMES, "RTP_p"),
        ),
    ),
)
