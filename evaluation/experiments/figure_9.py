"""Figure 9: relative throughput over the precision, in 2 to 10 dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.claims import Claim, falls, readings, rises, share
from evaluation.drawing import Canvas
from evaluation.experiment import Experiment, Progress
from evaluation.outcome import Outcome, Series
from evaluation.relative import FIRST, READINGS, best, modelled, relative
from evaluation.searching import Setup


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    rectangles: int
    servers: int
    events: int
    dimensions: tuple[int, ...]


NAMES = ("tests × the constant of Figure 12", "coordinates × such a constant", "our own router's time")


def run(sizes: Sizes, seed: int, progress: Progress) -> Outcome:
    series: dict[str, Series] = {}
    axis = list(map(float, sizes.dimensions))
    for count, name in enumerate(NAMES):
        gains, routing, hits = [], [], []
        for done, d in enumerate(sizes.dimensions):
            progress(count * len(axis) + done, len(axis) * len(NAMES), f"{d} dimensions, {name}")
            setup = Setup(
                servers=sizes.servers,
                per_server=sizes.rectangles,
                events=sizes.events,
                dimensions=d,
                timed=True,
            )
            model, measured = modelled(setup, READINGS[name], seed)
            gains.append(best(model).over_precise)
            routing.append(1e6 * model.curve[1.0].routing)
            hits.append(measured.precise.hit_ratio)
            if name == FIRST:
                series[f"{d} dimensions"] = relative(model)
        series[f"RTP_p, {name}"] = Series(axis, gains)
        series[f"T_dp, {name}"] = Series(axis, routing)
        series[f"R_p, {name}"] = Series(axis, hits)
    return Outcome({}, series)


def draw(canvas: Canvas, outcomes: Sequence[Outcome]) -> None:
    left, middle, right = canvas.panels(3)
    left.labels("Figure 9: throughput by precision", "precision", "throughput ÷ that of precise summaries")
    for name in outcomes[0].series:
        if name.endswith(" dimensions"):
            left.curve(name)
    middle.labels("Gain of the best precision", "dimensions", "RTP_p")
    right.labels("Routing with precise summaries", "dimensions", "T_dp, µs a server")
    for name in NAMES:
        middle.curve(f"RTP_p, {name}", name)
        right.curve(f"T_dp, {name}", name)
    middle.axes.axhline(1.0, color="black", lw=1.1, ls="--", label="published: no gain at low dimensions")
    right.axes.set_yscale("log")


def _low_and_high(outcome: Outcome, name: str) -> list[float]:
    """Precise wins at the two lowest dimensions, not at the two highest."""
    gains = outcome.series[f"RTP_p, {name}"].y
    return share(*(gain <= 1.02 for gain in gains[:2]), *(gain > 1.02 for gain in gains[-2:]))


EXPERIMENT = Experiment(
    name="figure-9",
    line="Figure 9",
    title="Relative throughput in 2 to 10 dimensions",
    question="For how many attributes are imprecise summaries worth it?",
    setting=(
        "10,000 rectangles a server, T_l = 100 µs, T_d in tests × the constant of Figure 12. In higher "
        "dimensions a test costs more, too: a second reading counts coordinates instead."
    ),
    sizes={
        "tiny": Sizes(rectangles=200, servers=1, events=200, dimensions=(2, 4, 8)),
        "quick": Sizes(rectangles=10_000, servers=1, events=1000, dimensions=(2, 4, 6, 8, 10)),
        "full": Sizes(rectangles=10_000, servers=2, events=2000, dimensions=(2, 4, 6, 8, 10)),
    },
    run=run,
    draw=draw,
    claims=(
        Claim(
            text="The gain of the best precision tends to grow with the dimensions.",
            readings=readings(NAMES, lambda o, name: share(*rises(o.series[f"RTP_p, {name}"].y, 0.005))),
            why=(
                "In our own router's time precise summaries cost a few microseconds and always win at T_l "
                "= 100 µs."
            ),
        ),
        Claim(
            text="At low dimensions precise summaries are best; at high ones they are not.",
            readings=readings(NAMES, _low_and_high),
            why=(
                "In our own router's time precise summaries cost a few microseconds and always win at T_l "
                "= 100 µs."
            ),
        ),
        Claim(
            text="With the dimensions the hit ratio of precise summaries falls and their routing time grows.",
            readings=readings(
                NAMES,
                lambda o, name: share(
                    *falls(o.series[f"R_p, {name}"].y), *rises(o.series[f"T_dp, {name}"].y)
                ),
            ),
        ),
    ),
)
