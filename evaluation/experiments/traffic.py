"""Ours: partitioning that looks at events, not at volumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evaluation.claims import Claim, Reading, share
from evaluation.drawing import Canvas
from evaluation.experiment import Experiment, NetworkSizes, Progress
from evaluation.outcome import Outcome
from evaluation.placing import Offline, Setup, place

METHODS = {
    "random": Offline("random"),
    "K-mean": Offline("kmeans"),
    "R-tree": Offline("rtree"),
    "traffic": Offline("traffic"),
    # At twice the average it would leave servers empty; a twentieth of slack is what it needs to move.
    "minimum cut": Offline("mincut", slack=1.05),
}
SETUPS = {
    "even": Setup(),
    "events normal(9.5, 0.25)": Setup(distribution="crowd"),
    "Zipf α = 1": Setup(distribution="zipf"),
    "both Zipf α = 0.5": Setup(distribution="zipf-both", alpha=0.5),
    "both Zipf α = 1": Setup(distribution="zipf-both"),
}


def run(sizes: NetworkSizes, seed: int, progress: Progress) -> Outcome:
    values = {"hit": 1 / (sizes.events * sizes.servers)}
    for done, (kind, setup) in enumerate(SETUPS.items()):
        progress(done, len(SETUPS), kind)
        sized = replace(setup, **sizes.network)
        for name, method in METHODS.items():
            placed = place(sized, seed, method)
            values[f"{kind}: {name}"] = placed.hit_ratio
            values[f"{kind}: load of {name}"] = placed.imbalance
    return Outcome(values, {})


def _saved(outcome: Outcome, kind: str) -> float:
    """None at all counts as one event for one server."""
    return 1 - outcome[f"{kind}: traffic"] / max(outcome[f"{kind}: R-tree"], outcome["hit"])


def _never_worse(outcome: Outcome) -> list[float]:
    return share(*(_saved(outcome, kind) >= -0.02 for kind in SETUPS))


def draw(canvas: Canvas, outcomes: Sequence[Outcome]) -> None:
    left, right = canvas.panels(2)
    for panel, prefix, title, unit in (
        (left, "", "Traffic by way of partitioning, offline", "hit ratio"),
        (right, "load of ", "How uneven the loads are", "largest load ÷ average"),
    ):
        panel.labels(title, "", unit)
        panel.groups(list(SETUPS), {name: f"{{name}}: {prefix}{name}" for name in METHODS})
        panel.legend_inside()


EXPERIMENT = Experiment(
    name="traffic",
    line="ours",
    title="Partitioning by traffic",
    question="Does it help to split by sampled events instead of by bounding volumes?",
    setting=(
        "The setting of Figure 3, offline; the 2,048 events that `traffic` and the minimum cut learn from "
        "are not those that judge. Loads are equal but for K-mean and the minimum cut."
    ),
    sizes={
        "tiny": NetworkSizes(servers=3, per_server=60, events=200),
        "quick": NetworkSizes(servers=10, per_server=2000, events=4000),
        "full": NetworkSizes(servers=10, per_server=10_000, events=10_000),
    },
    run=run,
    draw=draw,
    claims=(
        Claim(
            text="By traffic is never worse than by volume.",
            readings=(Reading("all five kinds, up to 2 %", _never_worse),),
        ),
        Claim(
            text="Where events gather it sends less than half of what volumes do.",
            readings=(
                Reading(
                    "events normal(9.5, 0.25)", lambda o: share(_saved(o, "events normal(9.5, 0.25)") > 0.5)
                ),
            ),
        ),
    ),
)
