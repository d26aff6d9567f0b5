"""Ours: tuning by a model of the throughput, beside the published rule, in many kinds of network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from evaluation.claims import Claim, Reading, share
from evaluation.drawing import Canvas
from evaluation.experiment import Experiment, NetworkSizes, Progress
from evaluation.outcome import Outcome
from evaluation.searching import OUR_WAY, Setup, curve, price
from evaluation.settling import regimes, settle, tenths
from selftune.throughput import Model

POLICIES = {"published rule, n = 2": "paper", "by the model": "model"}
STARTS = (0.0, 0.1, 0.5, 1.0)
GOOD = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes(NetworkSizes):
    #: noisy runs of each regime and start
    runs: int


def networks(sizes: Sizes, seed: int) -> dict[str, Model]:
    setup = Setup(**sizes.network, way=OUR_WAY, timed=True)
    cost = price("tests", OUR_WAY, seed)
    even, crowded = curve(setup, seed), curve(replace(setup, crowded=True), seed)
    return regimes(
        tenths(even.priced("tests", cost)),
        tenths(crowded.priced("tests", cost)),
        tenths(even.priced("kernel")),
    )


def run(sizes: Sizes, seed: int, progress: Progress) -> Outcome:
    values: dict[str, float] = {}
    kinds = networks(sizes, seed)
    for done, (name, model) in enumerate(kinds.items()):
        progress(done, len(kinds), name)
        for policy in POLICIES.values():
            ended = [
                settle(policy, 2.0, start, {name: model}, seed=1000 * seed + turn)[0]
                for start in STARTS
                for turn in range(sizes.runs)
            ]
            values[f"{name}: {policy}, worst"] = min(one.share for one in ended)
            values[f"{name}: {policy}, mean"] = fmean(one.share for one in ended)
            values[f"{name}: {policy}, changes"] = fmean(one.changes for one in ended)
    return Outcome(values, {})


def _names(outcome: Outcome) -> list[str]:
    return list(dict.fromkeys(name.rpartition(": ")[0] for name in outcome.values))


def _good(outcome: Outcome, policy: str) -> list[float]:
    return share(*(outcome[f"{name}: {policy}, worst"] >= GOOD for name in _names(outcome)))


def draw(canvas: Canvas, outcomes: Sequence[Outcome]) -> None:
    top, bottom = canvas.panels(1, 2, height=4.2, width=9.5)
    names = _names(outcomes[0])
    top.labels("Worst run of each kind of network", "", "throughput ÷ best fixed precision")
    bottom.labels("Restlessness", "", "changes in 40 intervals")
    for panel, what in ((top, "worst"), (bottom, "changes")):
        panel.groups(names, {label: f"{{name}}: {key}, {what}" for label, key in POLICIES.items()})
        panel.legend_inside()
    top.axes.axhline(GOOD, color="black", ls="--", lw=1.1, label="95 %")


EXPERIMENT = Experiment(
    name="tuning",
    line="ours",
    title="Tuning by a model",
    question=(
        "Does a policy that predicts throughput reach more of the best fixed precision than the published "
        "rule?"
    ),
    setting=(
        "Twelve kinds of network, each a simulation that obeys the equations, with noise: 1 % on the CPU's "
        "share, 2 % on the throughput, 3 % on the curve, and 10 % on each parameter that the model "
        "believes in, for a whole run. Starts at 0, 10, 50 and 100 %. Damping n = 2. Both use our cut."
    ),
    sizes={
        "tiny": Sizes(servers=2, per_server=200, events=200, runs=1),
        "quick": Sizes(servers=2, per_server=10_000, events=1000, runs=3),
        "full": Sizes(servers=3, per_server=10_000, events=1000, runs=5),
    },
    run=run,
    draw=draw,
    claims=(
        Claim(
            text=(
                "Tuned by the model every run reaches 95 % of the best fixed precision, in every kind of "
                "network."
            ),
            readings=(
                Reading("by the model", lambda o: _good(o, "model")),
                Reading("by the published rule", lambda o: _good(o, "paper")),
            ),
            why=(
                "The published rule looks at the dispatcher's CPU alone: where sending fills it, and not "
                "routing, it makes matters worse, and of the two points that it moves between one may be "
                "much worse than the other."
            ),
        ),
        Claim(
            text="It changes the precision less often than the published rule, dampened, does.",
            readings=(
                Reading(
                    "mean over the kinds of network",
                    lambda o: share(
                        fmean(o[f"{name}: model, changes"] for name in _names(o))
                        < fmean(o[f"{name}: paper, changes"] for name in _names(o))
                    ),
                ),
            ),
        ),
    ),
)
