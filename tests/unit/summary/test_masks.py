"""Bloom masks narrow a cut by equality tests, and never exclude a value that is tested for."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edn.arrays import Floats
from edn.summary import Summary, new_router
from edn.tools.bench.workloads import market_points, market_rectangles

INF = float("inf")

bounds = st.sampled_from([-INF, -1.0, -0.0, 0.0, 1.0, 2.0, 3.0, INF])


def routed(
    summary: Summary, k: int, points: Floats, *, masked: bool
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    nodes = summary.choose(k)
    router = new_router("bitmap")
    cover = router.cover(*summary.bounds(nodes), summary.masks(nodes) if masked else None)
    out = np.zeros((len(points), 1), dtype=np.bool_)
    router.bundle([(0, cover)]).mark(points, out)
    return out[:, 0]


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 14), st.integers(1, 3))
def test_every_event_that_a_rectangle_contains_passes_at_every_precision(
    data: st.DataObject, n: int, d: int
) -> None:
    drawn = np.array(data.draw(st.lists(bounds, min_size=2 * n * d, max_size=2 * n * d))).reshape(2, n, d)
    lo, hi = drawn.min(axis=0), drawn.max(axis=0)
    hi = np.where(np.array(data.draw(st.lists(st.booleans(), min_size=d, max_size=d))), lo, hi)
    grid = (
        np.array(np.meshgrid(*[[-INF, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, INF]] * d)).reshape(d, -1).T.copy()
    )
    wanted = ((grid[:, None] >= lo) & (grid[:, None] <= hi)).all(axis=2).any(axis=1)
    summary = Summary.from_bytes(Summary.build(lo, hi).to_bytes())
    for k in range(1, n + 1):
        found = routed(summary, k, grid, masked=True)
        assert not (wanted & ~found).any()
        assert not (found & ~routed(summary, k, grid, masked=False)).any()


def test_a_value_between_those_that_are_named_is_refused() -> None:
    named = np.arange(0.0, 40.0, 10.0)[:, None]
    summary = Summary.build(named, named)
    points = np.arange(0.0, 31.0)[:, None]
    assert routed(summary, 1, points, masked=False).all()
    passed = points[routed(summary, 1, points, masked=True), 0]
    assert set(named[:, 0]) <= set(passed)
    assert len(passed) < 10


def test_a_range_anywhere_below_a_node_opens_its_mask() -> None:
    lo = np.array([[0.0], [10.0], [20.0]])
    hi = np.array([[0.0], [12.0], [20.0]])
    assert routed(Summary.build(lo, hi), 1, np.linspace(0.0, 20.0, 50)[:, None], masked=True).all()


def test_filters_that_name_a_symbol_let_fewer_events_through_with_masks() -> None:
    rng = np.random.default_rng(3)
    lo, hi = market_rectangles(rng, 200)
    named = lo[:, 0] == hi[:, 0]
    summary = Summary.build(lo[named], hi[named])
    points = market_points(rng, 3000)
    k = summary.count // 4
    assert routed(summary, k, points, masked=True).sum() < routed(summary, k, points, masked=False).sum()
