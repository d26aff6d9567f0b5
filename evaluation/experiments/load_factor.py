"""The load-balancing factor: what it costs in traffic to keep loads even."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.claims import Claim, falls, readings, share
from evaluation.drawing import Canvas
from evaluation.experiment import Experiment, NetworkSizes, Progress
from evaluation.outcome import Outcome
from evaluation.placing import Online, Setup, ratios_and_loads, sweep

METHODS = {
    "R-tree online": Online(),
    "R-tree half offline": Online(offline=0.5),
    "K-mean online": Online(policy="kmeans"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes(NetworkSizes):
    factors: tuple[float, ...]


def run(sizes: Sizes, seed: int, progress: Progress) -> Outcome:
    def case(method: Online, factor: float) -> tuple[Setup, Online]:
        return Setup(**sizes.network, load_factor=factor), method

    found = sweep(METHODS, sizes.factors, case, seed, progress, "{name}, factor {x:g}")
    return Outcome({}, ratios_and_loads(sizes.factors, found))


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
    run=run,
    draw=draw,
    claims=(
        Claim(
            text="The hit ratio falls monotonically as the factor is relaxed.",
            readings=readings(METHODS, lambda o, name: share(*falls(o.series[name].y))),
        ),
    ),
)
