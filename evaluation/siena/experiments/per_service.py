"""Figure 21: Cost per service request.

Does the cost of a request fall as more clients share it? The total cost of the grid of Figure 19, divided
by the number of client requests (advertise, unadvertise, publish, subscribe, unsubscribe). The older text
groups messages by the request they follow from; requests whose messages never leave their site may then be
missing (R6).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from evaluation.experiment import Claim, Experiment, Measure, Outcome, Progress, readings
from evaluation.figures import Canvas
from evaluation.siena.grid import (
    ARCHITECTURES,
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
)

BY_REQUEST, BY_SERVICE = "cost per request", "cost per crossing service"
R6 = "by requests with messages between sites (R6)"


def run(seed: int, progress: Progress, **sizes: Any) -> Outcome:
    outcome = Outcome()
    metrics = {BY_REQUEST: mean_of("per_service"), BY_SERVICE: mean_of("per_crossing_service")}
    Grid(**sizes).fill(outcome, seed, progress, metrics)
    return outcome


def draw(canvas: Canvas) -> None:
    view = View(canvas.first, BASE.name)
    for panel, objects in zip(
        canvas.panels(2, (len(view.objects) + 1) // 2, height=3.6), view.objects, strict=False
    ):
        panel.labels(f"Figure 21: objects: {objects}", "interested parties", "cost per request")
        for number, one in enumerate(("hs", "as", "aa", "ce")):
            panel.curve(key(BASE, BY_REQUEST, one, objects), one, colour=number)
        panel.log_log()


def _with_r6(measure: Any) -> dict[str, Measure]:
    """Returns all readings of the grid, by requests, and the first one by services."""
    found = readings(NAMES, lambda outcome, name: measure(View(outcome, name), BY_REQUEST))
    return {**found, R6: lambda outcome: measure(View(outcome, BASE.name), BY_SERVICE)}


def _best(view: View, metric: str, objects: int, at: int) -> str:
    """Names the distributed architecture with the lowest cost."""
    return min(DISTRIBUTED, key=lambda one: view.curve(metric, one, objects)[at])


def _central_worst(view: View, metric: str) -> list[bool]:
    worst = [
        max(ARCHITECTURES, key=lambda one: view.curve(metric, one, objects)[at]) == "ce"
        for objects in view.objects
        for at in view.places()
    ]
    return [sum(worst) >= 0.9 * len(worst)]


def _few(view: View, metric: str) -> list[bool]:
    return [
        _best(view, metric, objects, at) == "hs" for objects in view.objects[:2] for at in view.places(0, 10)
    ]


def _comes_and_goes(view: View, metric: str) -> list[bool]:
    """With few objects: hs is not best between few parties and saturation, and best beyond it."""
    found = []
    for objects in view.objects[:2]:
        found += [_best(view, metric, objects, at) != "hs" for at in view.places(20, SATURATED)]
        found += [_best(view, metric, objects, at) == "hs" for at in view.places(200)]
    return found


def _many(view: View, metric: str) -> list[bool]:
    objects = view.objects[-1]
    return [
        min(ARCHITECTURES, key=lambda one: view.curve(metric, one, objects)[at]) == "as"
        for at in view.places()
    ]


def _flat(view: View, metric: str) -> float:
    curve = view.curve(metric, "as", view.objects[-1])
    return max(curve) / min(curve)


def _amortised(view: View, metric: str) -> list[bool]:
    return [
        later < earlier
        for one in DISTRIBUTED
        for objects in view.objects
        for earlier, later in pairwise(view.curve(metric, one, objects))
    ]


EXPERIMENT = Experiment(
    name="siena-per-service",
    text=__doc__,
    sizes={scale: SIZES[scale] for scale in ("tiny", "quick", "full")},
    seeds=SEEDS,
    run=run,
    draw=draw,
    claims=(
        Claim(
            "C8. ce is worst in essentially all scenarios (at 90 % of the points or more).",
            _with_r6(_central_worst),
            strict=True,
            why="With very few parties the central server is one hop where the others set up paths.",
        ),
        Claim(
            "C9. With few objects and few parties hs is best.",
            _with_r6(_few),
            strict=True,
            why="With one object hs is best, if only by a few percent beyond one party. With ten objects "
            "most notifications are ignored, and hs carries each of them to the root: it costs three "
            "times as much as as.",
        ),
        Claim(
            "C10. That advantage disappears with more parties and comes back only beyond saturation.",
            _with_r6(_comes_and_goes),
            strict=True,
            why="With one object hs stays best, by a constant that does not depend on the parties, so its "
            "advantage neither disappears nor comes back; with ten objects and more it never has it.",
        ),
        Claim("C11. With 1,000 objects as is best.", _with_r6(_many), strict=True),
        Claim(
            "C11. And it does not depend on the parties: largest ÷ smallest below 1.5, here as 1.",
            _with_r6(_flat),
            paper=(1.0, 1.5),
            partly=lambda ours: ours < 2,
            strict=True,
            why="It is flat on the published axis, on which ce and hs are fifty times as high. Seen alone "
            "it grows with the sites that have parties, and falls once the parties' own requests "
            "outnumber the publications.",
        ),
        Claim(
            "C21. Every distributed architecture amortises: the cost per request falls with the parties.",
            _with_r6(_amortised),
            strict=True,
            why="It falls beyond saturation. Below it, each new party opens new links, which costs more "
            "than its own requests add to the divisor.",
        ),
    ),
)
