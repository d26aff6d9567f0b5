"""Figure 9: Relative throughput in 2 to 10 dimensions.

For how many attributes do imprecise summaries pay off? 10,000 rectangles per server, T_l = 100 µs, T_d is
tests × the constant of Figure 12. A test costs more in higher dimensions: a second reading counts coordinates
instead.
"""

from __future__ import annotations

from itertools import product

from evaluation.cut_cost import Setup
from evaluation.experiment import Claim, Experiment, Outcome, Progress, Series, falls, readings, rises, track
from evaluation.figures import Canvas
from evaluation.relative_throughput import FIRST, Modelled, modelled

NAMES = ("tests × the constant of Figure 12", "coordinates × such a constant", "our own router's time")


def run(
    seed: int, progress: Progress, *, rectangles: int, servers: int, events: int, dimensions: tuple[int, ...]
) -> Outcome:
    outcome = Outcome()
    found: dict[str, list[Modelled]] = {name: [] for name in NAMES}
    for name, d in track(product(NAMES, dimensions), progress, "{1} dimensions, {0}"):
        setup = Setup(servers=servers, per_server=rectangles, events=events, dimensions=d, timed=True)
        found[name].append(modelled(setup, name, seed))
        if name == FIRST:
            outcome.series[f"{d} dimensions"] = found[name][-1].relative
    for name, row in found.items():
        outcome.series[f"RTP_p, {name}"] = Series(dimensions, [one.over_precise for one in row])
        outcome.series[f"T_dp, {name}"] = Series(dimensions, [1e6 * one.routing for one in row])
        hits = [one.measured.precise.hit_ratio for one in row]
        outcome.series[f"R_p, {name}"] = Series(dimensions, hits)
    return outcome


def draw(canvas: Canvas) -> None:
    left, middle, right = canvas.panels(3)
    left.labels("Figure 9: throughput by precision", "precision", "throughput ÷ that of precise summaries")
    left.curves([name for name in canvas.first.series if name.endswith(" dimensions")])
    middle.labels("Gain of the best precision", "dimensions", "RTP_p")
    right.labels("Routing with precise summaries", "dimensions", "T_dp, µs per server")
    middle.curves(NAMES, "RTP_p, ")
    right.curves(NAMES, "T_dp, ")
    middle.level("published: no gain at low dimensions", 1.0)
    right.axes.set_yscale("log")


def _low_and_high(outcome: Outcome, name: str) -> list[bool]:
    """Precise summaries are best in the two lowest dimensions, and not in the two highest."""
    gains = outcome.y(f"RTP_p, {name}")
    return [gain <= 1.02 for gain in gains[:2]] + [gain > 1.02 for gain in gains[-2:]]


_WHY = "In our own router's time precise summaries cost a few microseconds and always win at T_l = 100 µs."

EXPERIMENT = Experiment(
    name="figure-9",
    text=__doc__,
    sizes={
        "tiny": {"rectangles": 200, "servers": 1, "events": 200, "dimensions": (2, 4, 8)},
        "quick": {"rectangles": 10_000, "servers": 1, "events": 1000, "dimensions": (2, 4, 6, 8, 10)},
        "full": {"rectangles": 10_000, "servers": 2, "events": 2000, "dimensions": (2, 4, 6, 8, 10)},
    },
    run=run,
    draw=draw,
    claims=(
        Claim(
            "The gain of the best precision tends to grow with the dimensions.",
            readings(NAMES, lambda o, name: rises(o.y(f"RTP_p, {name}"), 0.005)),
            why=_WHY,
        ),
        Claim(
            "At low dimensions precise summaries are best; at high ones they are not.",
            readings(NAMES, _low_and_high),
            why=_WHY,
        ),
        Claim(
            "With more dimensions the hit ratio of precise summaries falls and their routing time grows.",
            readings(NAMES, lambda o, name: falls(o.y(f"R_p, {name}")) + rises(o.y(f"T_dp, {name}"))),
        ),
    ),
)
