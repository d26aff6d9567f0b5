"""load-balancing factor: Load balance against traffic.

What does the hit ratio gain where servers may be loaded unevenly? The setting of Figure 3 with 10 servers.
The factor is the largest allowed load ÷ the average. The published text names no values; we use 1.05 to 4.
"""

from __future__ import annotations

from typing import Any

from evaluation.experiment import Claim, Experiment, Outcome, Progress, falls, readings
from evaluation.figures import Canvas
from evaluation.simulated_placement import METHODS, Setup, sweep

NAMES = ("R-tree online", "R-tree half offline", "K-mean online")
FACTORS = (1.05, 1.25, 1.5, 2.0, 3.0, 4.0)


def run(seed: int, progress: Progress, *, factors: tuple[float, ...], **network: Any) -> Outcome:
    setups = [Setup(**network, load_factor=factor) for factor in factors]
    cases = {name: [(setup, METHODS[name]) for setup in setups] for name in NAMES}
    return sweep(cases, factors, seed, progress)


def draw(canvas: Canvas) -> None:
    left, right = canvas.panels(2)
    left.labels("Traffic", "load-balancing factor", "hit ratio")
    right.labels("How uneven the loads become", "load-balancing factor", "largest load ÷ average")
    left.curves(NAMES)
    right.curves(NAMES, "load of ")
    axis = canvas.first.series["R-tree online"].x
    right.line("allowed", (min(axis), max(axis)), (min(axis), max(axis)))
    left.axes.set_ylim(0, 1.05)


EXPERIMENT = Experiment(
    name="load-factor",
    text=__doc__,
    sizes={
        "tiny": {"servers": 3, "per_server": 60, "events": 200, "factors": (1.1, 2.0)},
        "quick": {"servers": 10, "per_server": 1000, "events": 2000, "factors": FACTORS},
        "full": {"servers": 10, "per_server": 3000, "events": 4000, "factors": FACTORS},
    },
    run=run,
    draw=draw,
    claims=(
        Claim(
            "The hit ratio falls monotonically as the factor is relaxed.",
            readings(NAMES, lambda o, name: falls(o.y(name))),
        ),
    ),
)
