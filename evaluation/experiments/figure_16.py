"""Figures 16 and 17: the published rule tunes the precision, also when the events change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evaluation.claims import Claim, Reading, Span, share
from evaluation.drawing import Canvas
from evaluation.experiment import Experiment, NetworkSizes, Progress, Scale
from evaluation.outcome import Outcome, Series
from evaluation.searching import OUR_WAY, PUBLISHED_WAY, Setup, Way, curve, price
from evaluation.settling import PHASE, published_model, settle

WAYS: dict[str, Way] = {"published cut": PUBLISHED_WAY, "our cut": OUR_WAY}
FIRST = next(iter(WAYS))
STARTS = (0.1, 1.0)
#: n; the published runs have 1
DAMPINGS = (1.0, 2.0)
PHASES = ("even", "normal(9.5, 0.25)")


def run(sizes: NetworkSizes, seed: int, progress: Progress) -> Outcome:
    values: dict[str, float] = {}
    series: dict[str, Series] = {}
    for done, (name, way) in enumerate(WAYS.items()):
        progress(done, len(WAYS), name)
        setup = Setup(**sizes.network, way=way)
        cost = price("tests", way, seed)
        before = published_model(curve(setup, seed), cost)
        after = published_model(curve(replace(setup, crowded=True), seed), cost)
        models = dict(zip(PHASES, (before, after), strict=True))
        for phase, model in models.items():
            series[f"TP, {phase}, {name}"] = Series(
                list(model.curve), [model.throughput(at) for at in model.curve]
            )
            values[f"best, {phase}, {name}"] = model.best()
        for damping in DAMPINGS:
            for start in STARTS:
                run_name = f"n = {damping:g}, from {start:.0%}, {name}"
                settled = settle("paper", damping, start, models, seed=seed)
                for one in settled:
                    values[f"precision, {one.phase}, {run_name}"] = one.mean_precision
                    values[f"throughput, {one.phase}, {run_name}"] = one.throughput
                    values[f"changes, {one.phase}, {run_name}"] = one.changes
                trace = settled[0].trace
                steps = [float(step) for step in range(len(trace.precisions))]
                series[f"precision, {run_name}"] = Series(steps, trace.precisions)
                series[f"throughput, {run_name}"] = Series(steps, trace.throughputs)
    return Outcome(values, series)


def draw(canvas: Canvas, outcomes: Sequence[Outcome], intervals: int, span: tuple[int, float, float]) -> None:
    """One seed: a mean of zigzags would show none."""
    panels = canvas.panels(2, 2, height=3.6)
    shown = outcomes[0]
    for column, start in enumerate(STARTS):
        name = f"n = 1, from {start:.0%}, {FIRST}"
        for row, (what, unit) in enumerate((("precision", "precision"), ("throughput", "events/s"))):
            panel = panels[2 * row + column]
            panel.labels(f"{what}, from {start:.0%}", "interval", unit)
            whole = shown.series[f"{what}, {name}"]
            cut = Series(whole.x[:intervals], whole.y[:intervals])
            panel.axes.step(cut.x, cut.y, where="post", color="#0072B2", label="published rule, n = 1")
            if what == "precision":
                begin, low, high = span
                panel.axes.fill_between(
                    [begin, intervals],
                    low,
                    high,
                    color="black",
                    alpha=0.12,
                    lw=0,
                    label="published: settles here",
                )
                panel.axes.set_ylim(-0.03, 1.05)
            else:
                panel.axes.set_ylim(0, None)
            if intervals > PHASE:
                panel.axes.axvline(PHASE, color="black", ls=":", lw=1.1, label="events change")


def _settled(phase: str, damping: float, name: str) -> Reading:
    return Reading(
        f"{name}, n = {damping:g}; both starts",
        lambda o: [o[f"precision, {phase}, n = {damping:g}, from {start:.0%}, {name}"] for start in STARTS],
    )


def _readings(phase: str) -> tuple[Reading, ...]:
    return tuple(_settled(phase, damping, name) for name in WAYS for damping in DAMPINGS)


def _higher(name: str) -> Reading:
    def measure(outcome: Outcome) -> list[float]:
        keys = [f"n = 1, from {start:.0%}, {name}" for start in STARTS]
        return share(
            *(
                outcome[f"throughput, {PHASES[1]}, {key}"] > outcome[f"throughput, {PHASES[0]}, {key}"]
                for key in keys
            )
        )

    return Reading(f"{name}, n = 1; both starts", measure)


_SETTING = (
    "The network of Figure 12 as a simulation that obeys the equations, with 1 % noise on the CPU's share "
    "and 2 % on the throughput. The published rule: steps of 10 %, 96 % as the threshold, n = 1. Mean "
    "precision over the forty intervals after the first twenty of a phase."
)
_SIZES: dict[Scale, NetworkSizes] = {
    "tiny": NetworkSizes(servers=2, per_server=200, events=200),
    "quick": NetworkSizes(servers=3, per_server=10_000, events=1000),
    "full": NetworkSizes(servers=10, per_server=10_000, events=2000),
}

FIGURE_16 = Experiment(
    name="figure-16",
    line="Figure 16",
    title="The published rule finds the best precision",
    question="Where does the rule settle from 10 % and from 100 %?",
    setting=_SETTING,
    sizes=_SIZES,
    seeds={"tiny": 1, "quick": 3, "full": 5},
    run=run,
    draw=lambda canvas, outcomes: draw(canvas, outcomes, PHASE // 2, (10, 0.4, 0.5)),
    claims=(
        Claim(
            text="From 10 % and from 100 % it comes to 40 to 50 % and stays there.",
            paper=Span(0.4, 0.5, "it leaves both starts", lambda ours: 0.1 < ours < 0.95),
            readings=_readings(PHASES[0]),
            show="{:.0%}",
            why=(
                "Our cut lets fewer events through at the same precision, so that its best point lies "
                "further left."
            ),
        ),
    ),
)
FIGURE_17 = Experiment(
    name="figure-17",
    line="Figure 17",
    title="The published rule follows a change of the events",
    question="Does it find the new best precision when the events become normal(9.5, 0.25)?",
    setting=_SETTING
    + " The events change after sixty intervals, not after thirteen, so that both phases can be judged.",
    sizes=_SIZES,
    seeds={"tiny": 1, "quick": 3, "full": 5},
    run=run,
    draw=lambda canvas, outcomes: draw(canvas, outcomes, 2 * PHASE, (PHASE + 10, 0.1, 0.2)),
    claims=(
        Claim(
            text="It settles at 10 to 20 %.",
            paper=Span(0.1, 0.2, "it goes down", lambda ours: ours < 0.4),
            readings=_readings(PHASES[1]),
            show="{:.0%}",
            why=(
                "Where the events gather the cut that is just fine enough depends on the tree; the rule "
                "then moves between the two tenths around that point."
            ),
        ),
        Claim(
            text="The throughput is higher than before.",
            readings=tuple(_higher(name) for name in WAYS),
        ),
    ),
)
EXPERIMENTS = (FIGURE_16, FIGURE_17)
