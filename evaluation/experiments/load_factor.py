"""The load-balancing factor: what it costs in traffic to keep loads even."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.claims import Claim, Order, falls, readings, share
from evaluation.drawing import Canvas
from evaluation.experiment import Experiment, Outcome, Progress, Series
from evaluation.placing import Online, Setup, place

METHODS = {
    "R-tree online": Online(),
    "R-tree half offline": Online(offline=0.5),
    "K-mean online": Online(policy="kmeans"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    servers: int
    per_server: int
    events: int
    factors: tuple[float, ...]


def run(sizes: Sizes, seed: int, progress: Progress) -> Outcome:
    series = {}
    axis = list(sizes.factors)
    for number, (name, method) in enumerate(METHODS.items()):
        ratios, loads = [], []
        for done, factor in enumerate(sizes.factors):
            progress(number * len(axis) + done, len(METHODS) * len(axis), f"{name}, factor {factor:g}")
            setup = Setup(
                servers=sizes.servers, per_server=sizes.per_server, events=sizes.events, load_factor=factor
            )
            placed = place(setup, seed, method)
            ratios.append(placed.hit_ratio)
            loads.append(placed.imbalance)
        series[name] = Series(axis, ratios)
        series[f"load of {name}"] = Series(axis, loads)
    return Outcome({}, series)


def draw(canvas: Canvas, outcomes: Sequence[Outcome]) -> None:
    left, right = canvas.panels(2)
    left.labels("Traffic", "load-balancing factor", "hit ratio")
    right.labels("What is made of the freedom", "load-balancing factor", "largest load ÷ average")
    for name in METHODS:
        left.curve(name)
        right.curve(f"load of {name}", name)
    ends = (min(outcomes[0].series["R-tree online"].x), max(outcomes[0].series["R-tree online"].x))
    right.axes.plot(ends, ends, color="black", ls="--", lw=1.1, label="the most that is allowed")
    left.axes.set_ylim(0, 1.05)
    left.legend()
    right.legend()


EXPERIMENT = Experiment(
    name="load-factor",
    line="load-balancing factor",
    title="Load balance against traffic",
    question="What does the hit ratio gain where servers may be loaded unevenly?",
    setting=(
        "The setting of Figure 3 with 10 servers. The factor is the largest load allowed ÷ the average. The "
        "published text names no values; 1.05 to 4 are taken."
    ),
    sizes={
        "tiny": Sizes(servers=3, per_server=60, events=200, factors=(1.1, 2.0)),
        "quick": Sizes(servers=10, per_server=1000, events=2000, factors=(1.05, 1.25, 1.5, 2.0, 3.0, 4.0)),
        "full": Sizes(servers=10, per_server=3000, events=4000, factors=(1.05, 1.25, 1.5, 2.0, 3.0, 4.0)),
    },
    seeds={"tiny": 1, "quick": 2, "full": 2},
    run=run,
    draw=draw,
    claims=(
        Claim(
            text="The hit ratio falls monotonically as the factor is relaxed.",
            paper=Order(),
            readings=readings(METHODS, lambda o, name: share(*falls(o.series[name].y))),
        ),
    ),
)
