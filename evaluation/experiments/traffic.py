"""Ours: Partitioning by traffic.

Does it help to split by sampled events instead of by bounding volumes? The setting of Figure 3, offline.
`traffic` and the minimum cut learn from 2,048 events that are not among those that judge them. Loads are
equal except with K-mean and the minimum cut.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from evaluation.experiment import Claim, Experiment, Outcome, Progress, track
from evaluation.figures import Canvas
from evaluation.simulated_placement import Offline, Setup, place

METHODS = {
    "random": Offline("random"),
    "K-mean": Offline("kmeans"),
    "R-tree": Offline("rtree"),
    "traffic": Offline("traffic"),
    # With a slack of two it would leave servers empty; it needs a twentieth to move anything.
    "minimum cut": Offline("mincut", slack=1.05),
}
SETUPS = {
    "even": Setup(),
    "events normal(9.5, 0.25)": Setup(distribution="crowd"),
    "Zipf α = 1": Setup(distribution="zipf"),
    "both Zipf α = 0.5": Setup(distribution="zipf-both", alpha=0.5),
    "both Zipf α = 1": Setup(distribution="zipf-both"),
}


def run(seed: int, progress: Progress, *, servers: int, per_server: int, events: int) -> Outcome:
    outcome = Outcome({"hit": 1 / (events * servers)})
    for kind, name in track(product(SETUPS, METHODS), progress, "{0}: {1}"):
        setup = replace(SETUPS[kind], servers=servers, per_server=per_server, events=events)
        placed = place(setup, seed, METHODS[name])
        outcome.values[f"{kind}: {name}"] = placed.hit_ratio
        outcome.values[f"{kind}: load of {name}"] = placed.imbalance
    return outcome


def _saved(outcome: Outcome, kind: str) -> float:
    """No traffic at all counts as one event for one server."""
    return 1 - outcome[f"{kind}: traffic"] / max(outcome[f"{kind}: R-tree"], outcome["hit"])


def draw(canvas: Canvas) -> None:
    left, right = canvas.panels(2)
    for panel, prefix, title, unit in (
        (left, "", "Traffic by way of partitioning, offline", "hit ratio"),
        (right, "load of ", "How uneven the loads are", "largest load ÷ average"),
    ):
        panel.labels(title, "", unit)
        panel.groups(list(SETUPS), {name: f"{{name}}: {prefix}{name}" for name in METHODS})


EXPERIMENT = Experiment(
    name="traffic",
    text=__doc__,
    sizes={
        "tiny": {"servers": 3, "per_server": 60, "events": 200},
        "quick": {"servers": 10, "per_server": 2000, "events": 4000},
        "full": {"servers": 10, "per_server": 10_000, "events": 10_000},
    },
    run=run,
    draw=draw,
    claims=(
        Claim(
            "By traffic is never worse than by volume.",
            {"all five kinds, up to 2 %": lambda o: (_saved(o, kind) >= -0.02 for kind in SETUPS)},
        ),
        Claim(
            "Where events concentrate, it sends less than half of what splits by volume send.",
            {"events normal(9.5, 0.25)": lambda o: _saved(o, "events normal(9.5, 0.25)") > 0.5},
        ),
    ),
)
