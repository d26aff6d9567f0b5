"""Figure 25: Worst cost of a site, and how evenly sites are loaded.

Which architecture would first congest a site? The grid of Figure 19: the largest cost of a site, each
averaged over the runs, and (003, Figures 5.12 and 5.13) the standard deviation of the cost per site divided
by its mean. To see what the difference comes from, a second population of parties never stops, so that no
notification is ignored.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

import numpy as np

from evaluation.experiment import Claim, Experiment, Outcome, Progress, Series, readings
from evaluation.figures import Canvas
from evaluation.siena.grid import (
    BASE,
    NAMES,
    SATURATED,
    SEEDS,
    SIZES,
    Grid,
    View,
    key,
    mean_of,
    sample,
    worst_site,
)

WORST, UNEVEN = "cost of the worst site", "unevenness"


def run(seed: int, progress: Progress, **sizes: Any) -> Outcome:
    outcome = Outcome()
    grid = Grid(**sizes)
    grid.fill(outcome, seed, progress, {WORST: worst_site, UNEVEN: mean_of("unevenness")})
    objects = grid.objects[-1] if grid.objects[-1] <= 100 else 100
    endless: dict[str, Any] = {"party_cycles": 10**6}
    for name, changes in {"parties finish": {}, "parties never finish": endless}.items():
        outcome.values[f"hs ÷ as, {name}"] = worst_site(
            sample(seed, grid.reading_runs, "hs", objects=objects, parties=400, **changes)
        ) / worst_site(sample(seed, grid.reading_runs, "as", objects=objects, parties=400, **changes))
    # More and more of the notifications are ignored, as parties take more or fewer cycles.
    cycles = (100, 50, 20, 10, 5, 2, 1)
    ignored, extra = [], []
    for count in cycles:
        runs = {
            one: sample(seed, grid.reading_runs, one, objects=10, parties=200, party_cycles=count)
            for one in ("hs", "as")
        }
        published = 10 * 10 * 10
        ignored.append(max(0.0, 1 - 10 * count / published))
        extra.append(
            fmean(one.total - other.total for one, other in zip(runs["hs"], runs["as"], strict=True))
        )
    outcome.series["hs - as by the share of ignored notifications"] = Series(ignored, extra)
    return outcome


def draw(canvas: Canvas) -> None:
    view = View(canvas.first, BASE.name)
    panels = canvas.panels(2, len(view.objects), height=3.2)
    for row, objects in enumerate(view.objects):
        for panel, metric, title in (
            (panels[2 * row], WORST, f"Figure 25: objects: {objects}"),
            (panels[2 * row + 1], UNEVEN, f"deviation ÷ mean: objects: {objects}"),
        ):
            panel.labels(title, "interested parties", metric)
            for number, one in enumerate(("hs", "as")):
                panel.curve(key(BASE, metric, one, objects), one, colour=number)
            panel.axes.set_xscale("log")
            panel.axes.set_ylim(bottom=0)


def _lower_with_few(outcome: Outcome, reading: str) -> list[bool]:
    view = View(outcome, reading)
    pairs = zip(view.curve(WORST, "hs", 1), view.curve(WORST, "as", 1), strict=True)
    return [one < other for one, other in pairs]


def _higher_with_many(outcome: Outcome, reading: str) -> list[bool]:
    view = View(outcome, reading)
    objects = view.objects[-1]
    pairs = zip(view.curve(WORST, "hs", objects), view.curve(WORST, "as", objects), strict=True)
    return [one >= 2 * other for one, other in pairs]


def _follows_ignored(outcome: Outcome) -> float:
    curve = outcome.series["hs - as by the share of ignored notifications"]
    return float(np.corrcoef(curve.x, curve.y)[0, 1])


def _hierarchy_even(outcome: Outcome, reading: str) -> list[bool]:
    view = View(outcome, reading)
    return [
        view.curve(UNEVEN, "hs", objects)[at] < view.curve(UNEVEN, "as", objects)[at]
        for objects in view.objects[:2]
        for at in view.places(0, 10)
    ]


def _peers_even(outcome: Outcome, reading: str) -> list[bool]:
    view = View(outcome, reading)
    return [
        view.curve(UNEVEN, "as", objects)[at] < view.curve(UNEVEN, "hs", objects)[at]
        for objects in view.objects[-2:]
        for at in view.places(SATURATED)
    ]


EXPERIMENT = Experiment(
    name="siena-per-site",
    text=__doc__,
    sizes={scale: SIZES[scale] for scale in ("tiny", "quick", "full")},
    seeds=SEEDS,
    run=run,
    draw=draw,
    claims=(
        Claim(
            "C18. With few objects the worst site of hs costs slightly less than that of as.",
            readings(NAMES, _lower_with_few),
            strict=True,
            why="With one object both carry the same notifications over the same tree; the rest, ignored "
            "notifications against flooded subscriptions, is small, and either may be larger.",
        ),
        Claim(
            "C18. With 1,000 it costs much more (here: twice and more).",
            readings(NAMES, _higher_with_many),
            strict=True,
        ),
        Claim(
            "C19. Not because of the root: with parties everywhere and nothing ignored, hs ÷ as is 1.",
            {
                "parties that never finish": lambda o: o["hs ÷ as, parties never finish"],
                "parties as published": lambda o: o["hs ÷ as, parties finish"],
            },
            paper=1.0,
            strict=True,
        ),
        Claim(
            "C19. The difference follows the ignored notifications: correlation 1.",
            {"10 objects, 200 parties, 1 to 100 cycles": _follows_ignored},
            paper=1.0,
            strict=True,
        ),
        Claim(
            "C20. With few objects and parties hs loads sites more evenly.",
            readings(NAMES, _hierarchy_even),
            strict=True,
            why="Subscriptions that are flooded load all sites alike, so as is the more even one; hs loads "
            "the way to the root. The published text itself calls its explanation probable only.",
        ),
        Claim(
            "C20. With many of both as does.",
            readings(NAMES, _peers_even),
            strict=True,
            why="Where both send every useful notification over every link, their unevenness differs little.",
        ),
    ),
)
