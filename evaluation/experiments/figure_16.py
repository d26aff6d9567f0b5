"""Figures 16 and 17: the published rule tunes the precision, also when the events change."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from evaluation.cut_cost import OUR_WAY, PUBLISHED_WAY, Setup, Way, curve, price
from evaluation.experiment import (
    Claim,
    Experiment,
    Measure,
    Outcome,
    Progress,
    Scale,
    Series,
    readings,
    track,
)
from evaluation.figures import COLOURS, Canvas
from evaluation.tuner_simulation import PHASE, published_model, settle

WAYS: dict[str, Way] = {"published cut": PUBLISHED_WAY, "our cut": OUR_WAY}
FIRST = next(iter(WAYS))
STARTS = (0.1, 1.0)
#: n; the published runs have 1
DAMPINGS = (1.0, 2.0)
EVEN, CROWDED = "even", "normal(9.5, 0.25)"


def run(seed: int, progress: Progress, **network: Any) -> Outcome:
    outcome = Outcome()
    for name, way in track(WAYS.items(), progress, "{0}"):
        setup = Setup(**network, way=way)
        cost = price("tests", way, seed)
        models = {
            EVEN: published_model(curve(setup, seed), cost),
            CROWDED: published_model(curve(replace(setup, crowded=True), seed), cost),
        }
        for phase, model in models.items():
            throughputs = [model.throughput(at) for at in model.curve]
            outcome.series[f"TP, {phase}, {name}"] = Series(list(model.curve), throughputs)
            outcome.values[f"best, {phase}, {name}"] = model.best()
        for damping, start in product(DAMPINGS, STARTS):
            label = f"n = {damping:g}, from {start:.0%}, {name}"
            settled = settle("paper", damping, start, models, seed=seed)
            for one in settled:
                outcome.values[f"precision, {one.phase}, {label}"] = one.mean_precision
                outcome.values[f"throughput, {one.phase}, {label}"] = one.throughput
                outcome.values[f"changes, {one.phase}, {label}"] = one.changes
            trace = settled[0].trace
            steps = range(len(trace.precisions))
            outcome.series[f"precision, {label}"] = Series(steps, trace.precisions)
            outcome.series[f"throughput, {label}"] = Series(steps, trace.throughputs)
    return outcome


def _draw(intervals: int, begin: int, low: float, high: float, canvas: Canvas) -> None:
    """Draws one seed, because a mean of zigzags would show none."""
    panels = iter(canvas.panels(2, 2, height=3.6))
    for (what, unit), start in product((("precision", "precision"), ("throughput", "events/s")), STARTS):
        panel = next(panels)
        panel.labels(f"{what}, from {start:.0%}", "interval", unit)
        whole = canvas.first.series[f"{what}, n = 1, from {start:.0%}, {FIRST}"]
        shown = whole.x[:intervals], whole.y[:intervals]
        panel.axes.step(*shown, where="post", color=COLOURS[0], label="published rule, n = 1")
        if what == "precision":
            style = {"color": "black", "alpha": 0.12, "lw": 0}
            panel.axes.fill_between([begin, intervals], low, high, label="published: settles here", **style)
        panel.axes.set_ylim(*((-0.03, 1.05) if what == "precision" else (0, None)))
        if intervals > PHASE:
            panel.axes.axvline(PHASE, color="black", ls=":", lw=1.1, label="events change")


def _settled(phase: str) -> dict[str, Measure]:
    def measured(outcome: Outcome, reading: str) -> list[float]:
        name, damping = reading.removesuffix("; both starts").split(", ")
        return [outcome[f"precision, {phase}, {damping}, from {start:.0%}, {name}"] for start in STARTS]

    names = [f"{name}, n = {damping:g}; both starts" for name, damping in product(WAYS, DAMPINGS)]
    return readings(names, measured)


def _higher(outcome: Outcome, reading: str) -> list[bool]:
    keys = [f"n = 1, from {start:.0%}, {reading.partition(',')[0]}" for start in STARTS]
    return [outcome[f"throughput, {CROWDED}, {key}"] > outcome[f"throughput, {EVEN}, {key}"] for key in keys]


_SETTING = """The network of Figure 12 as a simulation that follows the equations, with 1 % noise on the CPU
    share and 2 % on the throughput. The published rule: steps of 10 %, a threshold of 96 %, n = 1. The result
    is the mean precision over the forty intervals after the first twenty of a phase."""
_SIZES: dict[Scale, dict[str, int]] = {
    "tiny": {"servers": 2, "per_server": 200, "events": 200},
    "quick": {"servers": 3, "per_server": 10_000, "events": 1000},
    "full": {"servers": 10, "per_server": 10_000, "events": 2000},
}

FIGURE_16 = Experiment(
    name="figure-16",
    text=f"""Figure 16: The published rule finds the best precision

    Where does the rule settle from 10 % and from 100 %? {_SETTING}""",
    sizes=_SIZES,
    seeds={"tiny": 1, "quick": 3, "full": 5},
    run=run,
    draw=partial(_draw, PHASE // 2, 10, 0.4, 0.5),
    claims=(
        Claim(
            "From 10 % and from 100 % it reaches 40 to 50 % and stays there.",
            _settled(EVEN),
            paper=(0.4, 0.5),
            partly=lambda ours: 0.1 < ours < 0.95,
            show="{:.0%}",
            why="Our cut forwards fewer events at the same precision, so its best precision is lower.",
        ),
    ),
)
FIGURE_17 = Experiment(
    name="figure-17",
    text=f"""Figure 17: The published rule follows a change of the events

    Does it find the new best precision when the events become normal(9.5, 0.25)? {_SETTING} The events change
    after sixty intervals, not after thirteen, so that both phases can be judged.""",
    sizes=_SIZES,
    seeds={"tiny": 1, "quick": 3, "full": 5},
    run=run,
    draw=partial(_draw, 2 * PHASE, PHASE + 10, 0.1, 0.2),
    claims=(
        Claim(
            "It settles at 10 to 20 %.",
            _settled(CROWDED),
            paper=(0.1, 0.2),
            partly=lambda ours: ours < 0.4,
            show="{:.0%}",
            why="Where events concentrate, the coarsest cut that is still fine enough depends on the tree; "
            "the rule then alternates between the two tenths around that point.",
        ),
        Claim(
            "The throughput is higher than before.",
            readings([f"{name}, n = 1; both starts" for name in WAYS], _higher),
        ),
    ),
)
EXPERIMENTS = (FIGURE_16, FIGURE_17)
