"""Hit ratios and the choice of a precision beforehand, against plain comparison of every rectangle."""

from __future__ import annotations

import numpy as np
import pytest

from edn.summary import new_router
from edn.tools.bench.workloads import uniform_points, uniform_rectangles
from selftune.curve import Effort, measure, offline
from selftune.throughput import Parameters

PLENTY = Effort(seconds=60.0, most=10_000)


def hit_ratio(parts: list[tuple[np.ndarray, np.ndarray]], points: np.ndarray) -> float:
    inside = [
        ((points[:, None, :] >= lo) & (points[:, None, :] <= hi)).all(axis=2).any(axis=1) for lo, hi in parts
    ]
    return float(np.mean(inside))


@pytest.mark.parametrize("router", ["bitmap", "rtree"])
def test_the_hit_ratio_of_a_bundle_is_that_of_its_rectangles(router: str) -> None:
    rng = np.random.default_rng(3)
    parts = [uniform_rectangles(rng, 40, 4) for _ in range(3)]
    points = uniform_points(rng, 400, 4)
    kind = new_router(router)
    bundle = kind.bundle([(column, kind.cover(lo, hi)) for column, (lo, hi) in enumerate(parts)])
    found = measure(bundle, 3, points, PLENTY)
    assert found.hit_ratio == pytest.approx(hit_ratio(parts, points))
    assert found.routing > 0


def test_no_more_is_asked_than_the_effort_allows() -> None:
    asked = []

    class Counting:
        def mark(self, points: np.ndarray, out: np.ndarray) -> None:
            asked.append(len(points))

    measure(Counting(), 1, np.zeros((1000, 2)), Effort(seconds=60.0, most=100))
    # one to warm up, then chunks up to the hundred
    assert 100 <= sum(asked) < 120


def test_a_precision_is_chosen_beforehand_from_subscriptions_and_events() -> None:
    rng = np.random.default_rng(4)
    parts = [uniform_rectangles(rng, 300, 6) for _ in range(3)]
    points = uniform_points(rng, 500, 6)
    narrow = Parameters(servers=3, fixed=1e-3, message_bytes=1000, bandwidth=1000.0)
    model = offline(parts, points, narrow, precisions=(0.0, 0.2, 1.0), effort=PLENTY)
    assert model.curve[1.0].hit_ratio == pytest.approx(hit_ratio(parts, points))
    assert 1.0 == model.curve[0.0].hit_ratio >= model.curve[0.2].hit_ratio >= model.curve[1.0].hit_ratio
    assert model.best() == 1.0
    # Without a limit on the link, whatever routes least is best.
    wide = offline(parts, points, Parameters(servers=3, fixed=0.0), precisions=(0.0, 1.0), effort=PLENTY)
    assert wide.best() == 0.0
