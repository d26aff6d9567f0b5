"""Both policies on simulated networks: where they settle, whether they stay, what they reach of the best."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.cut_cost import (
    OUR_WAY,
    PUBLISHED_WAY,
    ROUTING_PRECISE,
    Counted,
    Curve,
    Point,
    Setup,
    Way,
    curve,
    price,
)
from evaluation.tuner_simulation import published_model, regimes, settle, tenths

#: as measured with ten servers of ten thousand rectangles: precision, R, tests; uniform events …
UNIFORM = [
    (0.0, 1.0, 0), (0.1, 0.971, 31), (0.2, 0.908, 76), (0.3, 0.814, 138), (0.4, 0.716, 196),
    (0.5, 0.621, 253), (0.6, 0.544, 298), (0.7, 0.492, 328), (0.8, 0.453, 353), (0.9, 0.434, 363),
    (1.0, 0.429, 366),
]  # fmt: skip
#: … and normal(9.5, 0.25)
NORMAL = [
    (0.0, 1.0, 0),
    (0.1, 0.544, 176),
    (0.2, 0.002, 228),
    *((round(step / 10, 1), 0.0, 228) for step in range(3, 11)),
]


def made(rows: list[tuple[float, float, int]]) -> Curve:
    points = [
        Point(precision=at, hit_ratio=hits, tests=tests, coordinates=tests, kernel=1e-6 * at)
        for at, hits, tests in rows
    ]
    return Curve(tuple(points), 10_000)


SECOND = ROUTING_PRECISE / 366
PHASES = {"uniform": published_model(made(UNIFORM), SECOND), "normal": published_model(made(NORMAL), SECOND)}
REGIMES = regimes(PHASES["uniform"].curve, PHASES["normal"].curve, tenths(made(UNIFORM).priced("kernel")))


@pytest.mark.parametrize("start", [0.1, 1.0])
@pytest.mark.parametrize("damping", [1.0, 2.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_published_rule_settles_beside_the_best_and_finds_the_new_best_when_events_change(
    start: float, damping: float, seed: int
) -> None:
    for ended in settle("paper", damping, start, PHASES, seed=seed):
        assert ended.is_near, f"{ended.phase}: {ended.visited} around {ended.best_precision}"


@pytest.mark.parametrize("start", [0.1, 1.0])
def test_damping_at_least_halves_the_changes_after_settling(start: float) -> None:
    [plain, _] = settle("paper", 1.0, start, PHASES, seed=1)
    [damped, _] = settle("paper", 2.0, start, PHASES, seed=1)
    assert 0 < damped.changes <= plain.changes / 2


@pytest.mark.parametrize("name", list(REGIMES))
def test_the_predicting_policy_reaches_the_best_fixed_precision_in_every_regime(name: str) -> None:
    model = REGIMES[name]
    shares = [
        settle("model", 2.0, start, {name: model}, seed=seed)[0].share
        for start in (0.0, 0.5, 1.0)
        for seed in range(3)
    ]
    assert min(shares) >= 0.95


def test_where_sending_fills_the_cpu_the_published_rule_makes_it_worse() -> None:
    name = "CPU-bound by sending, T_c = 0.5 ms"
    model = REGIMES[name]
    [ended] = settle("paper", 2.0, 1.0, {name: model}, seed=1)
    assert ended.visited == [0.0]
    assert ended.share < 0.85


@pytest.mark.parametrize("way", [PUBLISHED_WAY, OUR_WAY])
def test_curves_of_real_summaries_fall_with_the_precision_and_cost_more_to_search(way: Way) -> None:
    setup = Setup(servers=2, per_server=300, events=300, dimensions=4, way=way, timed=True)
    found = curve(setup, 0, (0.1, 0.5, 1.0))
    assert [point.precision for point in found.points] == [0.0, 0.1, 0.5, 1.0]
    hits = [point.hit_ratio for point in found.points]
    assert hits == sorted(hits, reverse=True)
    assert found.precise.coordinates > found.precise.tests > found.points[1].tests > 1
    assert all(point.kernel > 0 for point in found.points[1:])


def test_a_precise_search_finds_what_lies_in_a_rectangle_and_nothing_else() -> None:
    setup = Setup(servers=1, per_server=400, dimensions=1, events=2000, side=0.5)
    rectangles = setup.workload().rectangles(np.random.default_rng(0), 400)
    points = setup.workload().points(np.random.default_rng(1), 500)
    inside = [any(low <= x <= high for low, high in zip(*rectangles, strict=True)) for x in points]
    _, _, hits = Counted(*rectangles, PUBLISHED_WAY).search(1.0, points)
    assert hits == pytest.approx(np.mean(inside))


def test_the_price_of_a_test_makes_precise_summaries_as_slow_as_published() -> None:
    found = curve(Setup(servers=3), 0, (1.0,))
    assert found.precise.tests * price("tests", PUBLISHED_WAY, 0) == pytest.approx(ROUTING_PRECISE)
