"""Locality: subscriptions within a part x of the event space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.claims import Claim, Number, Reading, number
from evaluation.drawing import Canvas
from evaluation.experiment import Experiment, Progress
from evaluation.outcome import Outcome, Series
from evaluation.relative import FIRST, READINGS, best, modelled
from evaluation.searching import Setup

WHAT = {
    "R": "hit ratio",
    "T_d": "routing time",
    "best": "1 ÷ best throughput",
    "RTP_p": "gain over precise",
    "RTP_n": "1 ÷ gain over none",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    shares: tuple[float, ...]
    per_server: int
    servers: int
    events: int


def run(sizes: Sizes, seed: int, progress: Progress) -> Outcome:
    """Everything in parts of what it is for x = 1."""
    found: dict[str, list[float]] = {what: [] for what in WHAT}
    for done, x in enumerate((1.0, *sizes.shares)):
        progress(done, len(sizes.shares) + 1, f"x = {x:g}")
        # The smaller x, the more events it takes to see as many of those that matter.
        events = int(sizes.events / x)
        setup = Setup(servers=sizes.servers, per_server=sizes.per_server, events=events, within=x)
        model, measured = modelled(setup, READINGS[FIRST], seed)
        at = best(model)
        found["R"].append(measured.precise.hit_ratio)
        found["T_d"].append(model.curve[1.0].routing)
        found["best"].append(1 / model.throughput(at.precision))
        found["RTP_p"].append(at.over_precise)
        found["RTP_n"].append(1 / at.over_none)
    axis = list(sizes.shares)
    return Outcome({}, {what: Series(axis, [one / row[0] for one in row[1:]]) for what, row in found.items()})


def draw(canvas: Canvas, outcomes: Sequence[Outcome]) -> None:
    [panel] = canvas.panels(1)
    panel.labels("Locality", "x: part of the space that has subscriptions", "in parts of x = 1")
    for what, label in WHAT.items():
        panel.curve(what, label)
    axis = sorted(outcomes[0].series["R"].x)
    panel.axes.plot(axis, axis, color="black", ls="--", lw=1.1, label="published: x")
    panel.axes.axhline(1.0, color="black", ls=":", lw=1.1, label="published: unchanged")
    panel.axes.set_xscale("log")
    panel.axes.set_yscale("log")


def _per_x(what: str) -> tuple[Reading, ...]:
    def ratio(outcome: Outcome) -> float:
        shown = outcome.series[what]
        return sum(y / x for x, y in zip(shown.x, shown.y, strict=True)) / len(shown.x)

    return (Reading("÷ x, mean over the x", number(ratio)),)


EXPERIMENT = Experiment(
    name="locality",
    line="locality x",
    title="Subscriptions in a part of the space",
    question="What if all subscriptions lie in a part x of the event space?",
    setting=(
        "10,000 rectangles a server in 8 dimensions, shrunk into a corner that has the part x of the "
        "space; events are everywhere. T_l = 100 µs. The published text gives ratios; each of ours is "
        "divided by it, so that 1 is expected."
    ),
    sizes={
        "tiny": Sizes(shares=(0.5, 0.25), per_server=200, servers=1, events=300),
        "quick": Sizes(shares=(0.5, 0.25, 0.1), per_server=10_000, servers=1, events=1000),
        "full": Sizes(shares=(0.5, 0.25, 0.1, 0.05), per_server=10_000, servers=2, events=2000),
    },
    run=run,
    draw=draw,
    claims=(
        Claim(text="The hit ratio falls by x.", paper=Number(1.0), readings=_per_x("R")),
        Claim(
            text="The routing time falls by about x.",
            paper=Number(1.0, "it falls", lambda ours: ours < 2.0),
            readings=_per_x("T_d"),
            why="Events outside of the subspace are not free: the tree's root is looked at for each.",
        ),
        Claim(text="Absolute throughput rises by 1 / x.", paper=Number(1.0), readings=_per_x("best")),
        Claim(
            text="The gain over precise summaries is unchanged.",
            paper=Number(1.0),
            readings=(
                Reading(
                    "mean over the x",
                    number(lambda o: sum(o.series["RTP_p"].y) / len(o.series["RTP_p"].y)),
                ),
            ),
        ),
        Claim(text="The gain over no summaries rises by 1 / x.", paper=Number(1.0), readings=_per_x("RTP_n")),
    ),
)
