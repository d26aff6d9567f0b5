"""003, 4.4.3: Skipping what lies below a filter that fails.

How many filters does a server test per notification if it walks down its poset, and how many if it tests
all? Subscriptions are rectangles with random corners in [0, 10]^d, for d = 1, 2 and 4; notifications are
random points. For comparison: the 64-bit words that the product's bitmap kernel reads at most, two per
dimension and 64 rectangles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evaluation.experiment import Claim, Experiment, Outcome, Progress, Series
from evaluation.figures import Canvas
from evaluation.siena.poset import Poset

DIMENSIONS = (1, 2, 4)


class Box:
    """A rectangle as a filter."""

    __slots__ = ("hi", "lo")

    def __init__(self, lo: list[float], hi: list[float]) -> None:
        self.lo, self.hi = lo, hi

    def covers(self, other: Any) -> bool:
        return all(a <= b for a, b in zip(self.lo, other.lo, strict=True)) and all(
            a >= b for a, b in zip(self.hi, other.hi, strict=True)
        )

    def overlaps(self, other: Any) -> bool:
        return all(a <= b for a, b in zip(self.lo, other.hi, strict=True)) and all(
            a >= b for a, b in zip(self.hi, other.lo, strict=True)
        )

    def matches(self, values: Any) -> bool:
        return all(a <= x <= b for a, x, b in zip(self.lo, values, self.hi, strict=True))


def run(seed: int, progress: Progress, *, subscriptions: tuple[int, ...], events: int) -> Outcome:
    outcome = Outcome()
    for done, d in enumerate(DIMENSIONS):
        progress(done, len(DIMENSIONS), f"{d} dimensions")
        rng = np.random.default_rng([seed, 8, d])
        poset = Poset()
        tested, roots, words = [], [], []
        points = (rng.random((events, d)) * 10).tolist()
        for count in subscriptions:
            while len(poset) < count:
                corners = np.sort(rng.random((2, d)) * 10, axis=0).tolist()
                poset.insert(Box(corners[0], corners[1]))
            poset.tests = 0
            for point in points:
                poset.matching(point)
            tested.append(poset.tests / events)
            roots.append(float(len(poset.roots)))
            words.append(2.0 * d * -(-count // 64))
        outcome.series[f"poset, {d} dimensions"] = Series(subscriptions, tested)
        outcome.series[f"roots, {d} dimensions"] = Series(subscriptions, roots)
        outcome.series[f"words of the bitmap, {d} dimensions"] = Series(subscriptions, words)
    outcome.series["all"] = Series(subscriptions, [float(count) for count in subscriptions])
    return outcome


def draw(canvas: Canvas) -> None:
    for panel, d in zip(canvas.panels(3), DIMENSIONS, strict=True):
        panel.labels(f"{d} dimensions", "subscriptions", "per notification")
        panel.curve(f"poset, {d} dimensions", "tests, poset")
        panel.curve("all", "tests, all filters")
        panel.curve(f"words of the bitmap, {d} dimensions", "words, bitmap kernel")
        panel.log_log()


EXPERIMENT = Experiment(
    name="siena-lattice",
    text=__doc__,
    sizes={
        "tiny": {"subscriptions": (20, 60), "events": 50},
        "quick": {"subscriptions": (50, 100, 200), "events": 100},
        "full": {"subscriptions": (100, 200, 500, 1000), "events": 200},
    },
    seeds={"tiny": 1, "quick": 2, "full": 3},
    run=run,
    draw=draw,
    claims=(
        Claim(
            "C23. A notification skips what lies below a filter that fails: fewer tests than filters.",
            {
                f"{d} dimensions": lambda o, d=d: [  # type: ignore[misc]
                    tested < every
                    for tested, every in zip(o.y(f"poset, {d} dimensions"), o.y("all"), strict=True)
                ]
                for d in (2, 1, 4)
            },
            strict=True,
        ),
    ),
)
