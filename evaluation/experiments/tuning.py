"""Ours: Tuning by a model.

Does a policy that predicts throughput reach more of the best fixed precision than the published rule? Twelve
kinds of network, each a simulation that follows the equations, with noise: 1 % on the CPU share, 2 % on the
throughput, 3 % on the curve, and 10 % on each parameter that the model uses, for a whole run. Starts at 0,
10, 50 and 100 %. Damping n = 2. Both policies use our cut.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Any

from evaluation.cut_cost import OUR_WAY, Setup, curve, price
from evaluation.experiment import Claim, Experiment, Outcome, Progress, track
from evaluation.figures import Canvas
from evaluation.tuner_simulation import regimes, settle, tenths
from selftune.throughput import Model

POLICIES = {"published rule, n = 2": "paper", "by the model": "model"}
STARTS = (0.0, 0.1, 0.5, 1.0)
GOOD = 0.95


def networks(seed: int, **network: Any) -> dict[str, Model]:
    setup = Setup(**network, way=OUR_WAY, timed=True)
    cost = price("tests", OUR_WAY, seed)
    even, crowded = curve(setup, seed), curve(replace(setup, crowded=True), seed)
    return regimes(
        tenths(even.priced("tests", cost)),
        tenths(crowded.priced("tests", cost)),
        tenths(even.priced("kernel")),
    )


def run(seed: int, progress: Progress, *, runs: int, **network: Any) -> Outcome:
    """`runs`: noisy runs of each regime and start."""
    outcome = Outcome()
    for name, model in track(networks(seed, **network).items(), progress, "{0}"):
        for policy in POLICIES.values():
            ended = [
                settle(policy, 2.0, start, {name: model}, seed=1000 * seed + turn)[0]
                for start, turn in product(STARTS, range(runs))
            ]
            outcome.values[f"{name}: {policy}, worst"] = min(one.share for one in ended)
            outcome.values[f"{name}: {policy}, mean"] = fmean(one.share for one in ended)
            outcome.values[f"{name}: {policy}, changes"] = fmean(one.changes for one in ended)
    return outcome


def _names(outcome: Outcome) -> list[str]:
    return list(dict.fromkeys(name.rpartition(": ")[0] for name in outcome.values))


def _good(outcome: Outcome, policy: str) -> list[bool]:
    return [outcome[f"{name}: {policy}, worst"] >= GOOD for name in _names(outcome)]


def _changes(outcome: Outcome, policy: str) -> float:
    return fmean(outcome[f"{name}: {policy}, changes"] for name in _names(outcome))


def draw(canvas: Canvas) -> None:
    top, bottom = canvas.panels(1, 2, height=4.2, width=9.5)
    top.labels("Worst run of each kind of network", "", "throughput ÷ best fixed precision")
    bottom.labels("Restlessness", "", "changes in 40 intervals")
    for panel, what in ((top, "worst"), (bottom, "changes")):
        keys = {label: f"{{name}}: {key}, {what}" for label, key in POLICIES.items()}
        panel.groups(_names(canvas.first), keys)
    top.level("95 %", GOOD)


EXPERIMENT = Experiment(
    name="tuning",
    text=__doc__,
    sizes={
        "tiny": {"servers": 2, "per_server": 200, "events": 200, "runs": 1},
        "quick": {"servers": 2, "per_server": 10_000, "events": 1000, "runs": 3},
        "full": {"servers": 3, "per_server": 10_000, "events": 1000, "runs": 5},
    },
    run=run,
    draw=draw,
    claims=(
        Claim(
            "Tuned by the model, every run reaches 95 % of the best fixed precision, in every network.",
            {
                "by the model": lambda o: _good(o, "model"),
                "by the published rule": lambda o: _good(o, "paper"),
            },
            why="The published rule reads the dispatcher's CPU alone. Where the CPU is busy with sending and "
            "not with routing, the rule lowers the throughput; and of the two precisions between which it "
            "alternates, one may be much worse than the other.",
        ),
        Claim(
            "It changes the precision less often than the published rule with damping.",
            {"mean over the kinds of network": lambda o: _changes(o, "model") < _changes(o, "paper")},
        ),
    ),
)
