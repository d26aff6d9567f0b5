"""Figures 19 and 20: Total cost.

How does the cost of all messages grow with the number of interested parties and of objects of interest? 100
sites of a Transit-Stub graph, one server per site. Objects execute 10 cycles of advertise, 10 publications
and unadvertise, parties 10 cycles of subscribe, 10 notifications and unsubscribe; all events are of one
kind. A seed is a whole evaluation: the mean of 10 runs per point, with a graph, a placement and delays per
run. The published text gives neither the parameters of the graph nor its costs. Delays are those of a
Poisson process in the first reading; an object advertises again at once after it unadvertised.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from evaluation.experiment import Claim, Experiment, Outcome, Progress, readings
from evaluation.figures import Canvas
from evaluation.siena.grid import (
    BASE,
    DISTRIBUTED,
    NAMES,
    SATURATED,
    SEEDS,
    SIZES,
    Grid,
    View,
    key,
    mean_of,
    relative_deviation,
    slopes,
)

COST, DEVIATION = "total cost", "deviation"


def run(seed: int, progress: Progress, **sizes: Any) -> Outcome:
    outcome = Outcome()
    Grid(**sizes).fill(outcome, seed, progress, {COST: mean_of("total"), DEVIATION: relative_deviation})
    return outcome


def draw(canvas: Canvas) -> None:
    view = View(canvas.first, BASE.name)
    panels = canvas.panels(2, len(view.objects), height=3.4)
    for row, objects in enumerate(view.objects):
        left, right = panels[2 * row : 2 * row + 2]
        left.labels(f"Figure 19: objects: {objects}", "interested parties", "total cost")
        for number, one in enumerate(DISTRIBUTED):
            left.curve(key(BASE, COST, one, objects), one, colour=number)
        left.axes.set_xscale("log")
        left.axes.set_ylim(bottom=0)
        right.labels("with the central server", "interested parties", "total cost")
        for number, other in enumerate(("hs", "as", "aa", "ce")):
            right.curve(key(BASE, COST, other, objects), other, colour=number)
        right.log_log()


def _central_is_worst(outcome: Outcome, reading: str) -> list[bool]:
    view = View(outcome, reading)
    return [
        view.curve(COST, "ce", objects)[at] > 2 * view.curve(COST, other, objects)[at]
        for objects in view.objects
        for other in DISTRIBUTED
        for at in view.places(1000)
    ] or [False]


def _onset(outcome: Outcome, objects: int) -> float:
    """Parties at which the central server has a tenth of its cost at 10,000, where a linear axis shows it."""
    view = View(outcome, BASE.name)
    curve = view.curve(COST, "ce", min(objects, view.objects[-1]))
    growth = (curve[-1] - curve[-2]) / (view.parties[-1] - view.parties[-2])
    share = (curve[-1] + growth * (10_000 - view.parties[-1])) / 10
    for at in range(len(curve) - 1):
        if curve[at] <= share <= curve[at + 1]:
            part = (share - curve[at]) / (curve[at + 1] - curve[at])
            return view.parties[at] + part * (view.parties[at + 1] - view.parties[at])
    return view.parties[0] if share < curve[0] else view.parties[-1] + (share - curve[-1]) / growth


def _saturated(outcome: Outcome, reading: str) -> list[float]:
    view = View(outcome, reading)
    last = view.parties[-1]
    return [
        view.at(COST, one, objects, last) / view.at(COST, one, objects, 200)
        for one in DISTRIBUTED
        for objects in view.objects
    ]


def _sublinear(outcome: Outcome, reading: str) -> list[bool]:
    view = View(outcome, reading)
    found = []
    for one in DISTRIBUTED:
        for objects in view.objects:
            places = view.places(0, SATURATED)
            x = [view.parties[at] for at in places]
            y = [view.curve(COST, one, objects)[at] for at in places]
            found += [slope < 1 for slope in slopes(x, y)]
    return found


def _marginal_falls(outcome: Outcome, reading: str) -> list[bool]:
    """Whether each further party costs less than the one before, up to saturation."""
    view = View(outcome, reading)
    found = []
    for one in DISTRIBUTED:
        for objects in view.objects:
            places = view.places(0, SATURATED)
            curve = view.curve(COST, one, objects)
            steps = [(curve[b] - curve[a]) / (view.parties[b] - view.parties[a]) for a, b in pairwise(places)]
            found += [later < earlier for earlier, later in pairwise(steps)]
    return found


def _ratios(outcome: Outcome, reading: str, over: str, under: str, objects: int) -> list[float]:
    view = View(outcome, reading)
    pairs = zip(view.curve(COST, over, objects), view.curve(COST, under, objects), strict=True)
    return [one / other for one, other in pairs]


def _ratio_grows(outcome: Outcome, reading: str) -> list[bool]:
    objects = View(outcome, reading).objects
    rows = [_ratios(outcome, reading, "hs", "as", one) for one in objects]
    return [fewer < more for low, high in pairwise(rows) for fewer, more in zip(low, high, strict=True)]


def _ratio_is_constant(outcome: Outcome, reading: str) -> list[float]:
    found = []
    for objects in View(outcome, reading).objects[1:]:
        ratios = _ratios(outcome, reading, "hs", "as", objects)
        found.append(max(ratios) / min(ratios))
    return found


def _hierarchy_costs_more(outcome: Outcome, reading: str) -> list[bool]:
    objects = View(outcome, reading).objects[1:]
    return [ratio > 1 for one in objects for ratio in _ratios(outcome, reading, "hs", "as", one)]


def _unstable(outcome: Outcome, reading: str) -> list[bool]:
    view = View(outcome, reading)
    return [
        view.curve(DEVIATION, "aa", objects)[at] > 5 * view.curve(DEVIATION, "as", objects)[at]
        for objects in view.objects
        for at in view.places(0, 20)
    ]


def _more_unstable(outcome: Outcome, reading: str) -> list[bool]:
    view = View(outcome, reading)
    places = view.places(0, 20)
    rows = [
        sum(view.curve(DEVIATION, "aa", objects)[at] for at in places)
        / sum(view.curve(DEVIATION, "as", objects)[at] for at in places)
        for objects in view.objects
    ]
    return [earlier < later for earlier, later in pairwise(rows)]


def _joins(outcome: Outcome, reading: str) -> list[float]:
    view = View(outcome, reading)
    return [
        _ratios(outcome, reading, "aa", "as", objects)[at]
        for objects in view.objects
        for at in view.places(200)
    ]


def _calm(outcome: Outcome, reading: str) -> list[bool]:
    view = View(outcome, reading)
    return [
        deviation < 0.05
        for one in ("ce", "hs", "as")
        for objects in view.objects
        for deviation in view.curve(DEVIATION, one, objects)
    ]


EXPERIMENT = Experiment(
    name="siena-total-cost",
    text=__doc__,
    sizes={scale: SIZES[scale] for scale in ("tiny", "quick", "full")},
    seeds=SEEDS,
    run=run,
    draw=draw,
    claims=(
        Claim(
            "C1. From 1,000 parties on ce's cost far outweighs the others' (here: twice and more).",
            readings(NAMES, _central_is_worst),
            strict=True,
            why="With 1,000 objects most notifications find nobody. They go to the root of the hierarchy as"
            " they go to the central server, so hs is close to ce there until the parties outnumber the"
            " objects.",
        ),
        Claim(
            "C1. It blows up at around 1,000 parties.",
            {
                "100 objects (003, Figure 5.6)": lambda o: _onset(o, 100),
                "1 object": lambda o: _onset(o, 1),
                "10 objects": lambda o: _onset(o, 10),
                "1,000 objects": lambda o: _onset(o, 1000),
            },
            paper=1000.0,
            partly=lambda ours: ours > SATURATED,
            show="{:,.0f}",
            strict=True,
            why="The growth is linear, so it reaches a tenth of its largest value near a tenth of the "
            "parties; with many objects the publications themselves are more than that.",
        ),
        Claim(
            "C2. Beyond 100 parties the distributed architectures' cost is constant: largest ÷ 200 parties.",
            readings(NAMES, _saturated),
            paper=(1.0, 1.0),
            partly=lambda ours: ours < 1.5,
            strict=True,
            why="200 parties leave an eighth of the sites empty. With 1,000 objects, parties that start "
            "apart keep more of the publications useful, and the cost of as and aa still grows.",
        ),
        Claim(
            "C3. Below saturation they scale sublinearly (slope below 1 at every step).",
            readings(NAMES, _sublinear),
            strict=True,
        ),
        Claim(
            "C3. And each further party costs less than the one before.",
            readings(NAMES, _marginal_falls),
            strict=True,
            why="Ten runs per point are too few for second differences: neighbouring steps differ by less "
            "than runs do.",
        ),
        Claim("C4. hs ÷ as grows with the number of objects.", readings(NAMES, _ratio_grows), strict=True),
        Claim(
            "C4. That factor is constant in the parties: largest ÷ smallest.",
            readings(NAMES, _ratio_is_constant),
            paper=(1.0, 1.0),
            partly=lambda ours: ours < 1.5,
            strict=True,
            why="The difference is constant, not the factor: it is the cost of ignored notifications, while"
            " the cost of as itself grows with the parties.",
        ),
        Claim(
            "C5. Except for one object, hs costs more than as everywhere.",
            readings(NAMES, _hierarchy_costs_more),
            strict=True,
        ),
        Claim(
            "C6. aa is unstable at low densities: its deviation over the runs is 5 × that of as and more.",
            readings(NAMES, _unstable),
            strict=True,
            why="Here the cost of aa deviates as little as that of as. Graph and places decide both; the "
            "experiment on instability below separates them from timing.",
        ),
        Claim(
            "C6. The more so the more objects there are.",
            readings(NAMES, _more_unstable),
            strict=True,
            why="There is no instability that could grow: many objects advertise on behalf of each other.",
        ),
        Claim(
            "C6. Beyond saturation aa costs as much as as (ratio 1).",
            readings(NAMES, _joins),
            paper=(1.0, 1.0),
            partly=lambda ours: ours < 1.5,
            strict=True,
            why="With one object every cycle floods an advertisement and an unadvertisement, and all "
            "subscriptions follow again; that is a quarter of the cost of its ten publications, "
            "whatever the parties are.",
        ),
        Claim(
            "C7. The deviation of ce, hs and as over the runs is negligible (below 5 %).",
            readings(NAMES, _calm),
            strict=True,
            why="With few objects or parties their places decide the cost, and places are drawn per run.",
        ),
    ),
)
