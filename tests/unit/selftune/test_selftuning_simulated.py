"""Both policies on simulated networks: where they settle, whether they stay, what they reach of the best."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from evaluation.command import app
from evaluation.selftuning import PUBLISHED, ROUTING_PRECISE, priced, regimes, settle
from evaluation.selftuning_curves import Curves, Point, Setup, curves
from selftune.throughput import Model

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


def points(rows: list[tuple[float, float, int]]) -> dict[float, Point]:
    return {
        at: Point(precision=at, hit_ratio=hits, tests=tests, kernel=1e-6 * at) for at, hits, tests in rows
    }


MEASURED = Curves(uniform=points(UNIFORM), normal=points(NORMAL))
SECOND = ROUTING_PRECISE / 366
PHASES = {
    "uniform": Model(PUBLISHED, priced(MEASURED.uniform, SECOND)),
    "normal": Model(PUBLISHED, priced(MEASURED.normal, SECOND)),
}


@pytest.mark.parametrize("start", [0.1, 1.0])
@pytest.mark.parametrize("damping", [1.0, 2.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_published_rule_settles_beside_the_best_and_finds_the_new_best_when_events_change(
    start: float, damping: float, seed: int
) -> None:
    for ended in settle("paper", damping, start, PHASES, seed=seed):
        assert ended.near, f"{ended.phase}: {ended.visited} around {ended.best_precision}"


@pytest.mark.parametrize("start", [0.1, 1.0])
def test_damping_at_least_halves_the_changes_after_settling(start: float) -> None:
    [plain, _] = settle("paper", 1.0, start, PHASES, seed=1)
    [damped, _] = settle("paper", 2.0, start, PHASES, seed=1)
    assert 0 < damped.changes <= plain.changes / 2


@pytest.mark.parametrize("name", list(regimes(MEASURED, SECOND)))
def test_the_predicting_policy_reaches_the_best_fixed_precision_in_every_regime(name: str) -> None:
    model = regimes(MEASURED, SECOND)[name]
    shares = [
        settle("model", 2.0, start, {name: model}, seed=seed)[0].share
        for start in (0.0, 0.5, 1.0)
        for seed in range(3)
    ]
    assert min(shares) >= 0.95


def test_where_sending_fills_the_cpu_the_published_rule_makes_it_worse() -> None:
    name = "CPU-bound by sending, T_c = 0.5 ms"
    model = regimes(MEASURED, SECOND)[name]
    [ended] = settle("paper", 2.0, 1.0, {name: model}, seed=1)
    assert ended.visited == [0.0]
    assert ended.share < 0.85


def test_curves_of_real_summaries_fall_with_the_precision_and_cost_more_to_search() -> None:
    found = curves(Setup(servers=2, per_server=300, events=300, dimensions=4))
    ordered = [found.uniform[at] for at in sorted(found.uniform)]
    assert [point.precision for point in ordered] == [step / 10 for step in range(11)]
    hits = [point.hit_ratio for point in ordered]
    assert hits == sorted(hits, reverse=True)
    assert ordered[-1].tests > ordered[1].tests > 1


def test_the_experiments_run_as_a_command() -> None:
    words = ["selftuning", "--servers", "2", "--per-server", "200", "--events", "200", "--seeds", "1"]
    result = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    told = json.loads(result.stdout)["result"]
    assert {"figure_12", "figure_12_own_router", "settling", "regimes"} == set(told)
    assert len(told["regimes"]) >= 8
    table = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "Figure 12" in table.stdout
