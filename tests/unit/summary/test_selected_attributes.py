"""Summaries of a few attributes are wider than the full summary, never narrower."""

from __future__ import annotations

import numpy as np
import pytest

from edn.summary import Summary
from edn.summary.selection import most_selective, select, selected
from edn.tools.bench.workloads import market_rectangles, uniform_rectangles

INF = float("inf")


def test_the_attributes_that_rule_out_most_are_chosen() -> None:
    lo, hi = uniform_rectangles(np.random.default_rng(1), 200, 4)
    lo[:, 2], hi[:, 2] = -INF, INF
    hi[:, 1] = lo[:, 1] + 0.1
    assert most_selective(lo, hi, 1).tolist() == [1]
    assert most_selective(lo, hi, 3).tolist() == [0, 1, 3]
    assert most_selective(lo, hi, 9).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("attributes", [0, 1, 2, 6])
def test_what_is_left_contains_every_rectangle(attributes: int) -> None:
    lo, hi = market_rectangles(np.random.default_rng(2), 300)
    columns = most_selective(lo, hi, attributes)
    kept_lo, kept_hi = select(lo, hi, columns)
    inside = ((kept_lo[:, None] <= lo) & (kept_hi[:, None] >= hi)).all(axis=2)
    assert inside.any(axis=0).all()
    others = np.setdiff1d(np.arange(6), columns)
    assert (kept_lo[:, others] == -INF).all()
    assert (kept_hi[:, others] == INF).all()
    assert len(kept_lo) <= 300


def test_with_all_attributes_nothing_but_covered_rectangles_goes() -> None:
    lo = np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]])
    hi = np.array([[4.0, 4.0], [2.0, 2.0], [6.0, 6.0]])
    kept_lo, _ = select(lo, hi, np.array([0, 1]))
    assert sorted(kept_lo[:, 0].tolist()) == [0.0, 5.0]


@pytest.mark.parametrize("attributes", [1, 2, 3])
@pytest.mark.parametrize("precision", [0.1, 1.0])
def test_a_summary_of_a_few_attributes_contains_every_rectangle_however_it_is_cut(
    attributes: int, precision: float
) -> None:
    lo, hi = uniform_rectangles(np.random.default_rng(3), 200, 4)
    few = selected(Summary.build(lo, hi), attributes)
    few.check()
    kept_lo, kept_hi = few.cut(max(1, int(precision * few.count)))
    inside = ((kept_lo[:, None] <= lo) & (kept_hi[:, None] >= hi)).all(axis=2)
    assert inside.any(axis=0).all()
    assert (np.isfinite(few.rects()[0]).any(axis=0)).sum() == attributes


@pytest.mark.parametrize("attributes", [4, 9])
def test_a_summary_that_has_no_more_attributes_stays_as_it_is(attributes: int) -> None:
    summary = Summary.build(*uniform_rectangles(np.random.default_rng(4), 20, 4))
    assert selected(summary, attributes) is summary


def test_nothing_has_no_attributes_to_select() -> None:
    empty = Summary.build(np.empty((0, 3)), np.empty((0, 3)))
    assert selected(empty, 1) is empty
