"""The seeded distributions: what is drawn lies where its name says, and a seed draws it again."""

from __future__ import annotations

import numpy as np
import pytest

from edn.tools.bench.workloads import (
    MARKET_SYMBOLS,
    SIDE,
    Workload,
    Zipf,
    crowd,
    limited,
    local,
    market,
    market_rectangles,
    uniform,
    zipf,
    zipf_both,
)

WORKLOADS = [
    uniform(3),
    crowd(3),
    limited(3, side=4.0),
    limited(3, volume=0.01),
    local(3, 0.125),
    zipf(2, 1.0),
    zipf(2, 1.0, inclusive=False),
    zipf_both(2, 2.0),
    market(),
]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda one: one.name)
def test_rectangles_are_none_inside_out_and_a_seed_draws_them_again(workload: Workload) -> None:
    lo, hi = workload.rectangles(np.random.default_rng(3), 500)
    assert lo.shape == hi.shape == (500, workload.dimensions)
    assert (lo <= hi).all()
    again = workload.rectangles(np.random.default_rng(3), 500)
    assert (again[0] == lo).all()
    assert (again[1] == hi).all()
    assert workload.points(np.random.default_rng(3), 7).shape == (7, workload.dimensions)


def test_no_side_is_longer_than_its_limit_and_short_ones_are_as_likely_as_they_were() -> None:
    lo, hi = limited(4, side=4.0).rectangles(np.random.default_rng(0), 20_000)
    sides = hi - lo
    assert sides.max() <= 4.0
    # A side s has density 2 (10 - s) / 100: 0.64 of all are below 4, 0.36 are below 2.
    assert (sides <= 2.0).mean() == pytest.approx(0.36 / 0.64, abs=0.01)


def test_no_rectangle_is_larger_than_its_share_of_the_space() -> None:
    lo, hi = limited(4, volume=0.001).rectangles(np.random.default_rng(0), 2000)
    assert np.prod((hi - lo) / SIDE, axis=1).max() <= 0.001


def test_locality_shrinks_the_subspace_to_its_share() -> None:
    lo, hi = local(4, 0.1).rectangles(np.random.default_rng(0), 20_000)
    assert lo.min() >= 0.0
    assert np.prod(hi.max(axis=0) / SIDE) == pytest.approx(0.1, rel=0.01)
    assert local(4, 0.1).points(np.random.default_rng(0), 2000).max() > 9.0


def test_bounds_that_exclude_their_bins_leave_rectangles_without_volume() -> None:
    law = Zipf.make(2, 2.0)
    rng = np.random.default_rng(0)
    lo, hi = law.rectangles(rng, 1000)
    assert (hi > lo).all()
    flat_lo, flat_hi = Zipf.make(2, 2.0, inclusive=False).rectangles(np.random.default_rng(0), 1000)
    assert ((flat_hi == flat_lo).any(axis=1)).mean() > 0.5


def test_the_first_cell_is_the_most_popular_unless_it_is_ranked_anew() -> None:
    law = Zipf.make(2, 2.0)
    cells = law.cells(np.random.default_rng(0), 2000)
    assert (cells == 0).all(axis=1).mean() == pytest.approx(law.cumulative[0], abs=0.03)
    other = law.reranked(np.random.default_rng(1))
    assert (other.cells(np.random.default_rng(0), 2000) == 0).all(axis=1).mean() < 0.1


def test_as_many_filters_name_a_symbol_as_were_asked_for() -> None:
    lo, hi = market_rectangles(np.random.default_rng(0), 4000, named=0.25)
    named = np.isfinite(lo[:, 0])
    assert named.mean() == pytest.approx(0.25, abs=0.03)
    assert (lo[named, 0] == hi[named, 0]).all()
    assert hi[named, 0].max() < MARKET_SYMBOLS
