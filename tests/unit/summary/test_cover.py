"""Both routers find exactly the points in a rectangle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edn.arrays import Floats
from edn.summary import new_router
from edn.tools.bench.workloads import Workload, market, uniform, zipf

INF = float("inf")
LOWEST = -float(np.finfo(np.float64).max)

values = st.sampled_from([-INF, LOWEST, -1.0, 0.0, 1.0, 2.0, 1e300, INF])
routers = pytest.mark.parametrize("name", ["bitmap", "rtree"])


def inside_any(points: Floats, lo: Floats, hi: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The definition, one rectangle at a time; columns that either side lacks are filled in."""
    found = np.zeros(len(points), dtype=np.bool_)
    for low, high in zip(lo, hi, strict=True):
        inside = np.ones(len(points), dtype=np.bool_)
        for j in range(len(low)):
            x = points[:, j] if j < points.shape[1] else np.full(len(points), -INF)
            inside &= (x >= low[j]) & (x <= high[j])
        found |= inside
    return found


@routers
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_column_is_set_exactly_where_one_of_its_rectangles_contains_the_point(
    name: str, data: st.DataObject
) -> None:
    router = new_router(name)
    covers = []
    width = data.draw(st.integers(0, 4), label="columns of the points")
    points = np.array(data.draw(st.lists(values, min_size=6 * width, max_size=6 * width))).reshape(6, width)
    expected = np.zeros((6, 3), dtype=np.bool_)
    for _ in range(data.draw(st.integers(0, 4), label="covers")):
        n, d = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 4))
        drawn = data.draw(st.lists(values, min_size=2 * n * d, max_size=2 * n * d))
        both = np.array(drawn).reshape(2, n, d)
        lo, hi = both.min(axis=0), both.max(axis=0)
        column = data.draw(st.integers(0, 2))
        make = router.cover if data.draw(st.booleans()) else router.tail
        covers.append((column, make(lo, hi)))
        expected[:, column] |= inside_any(points, lo, hi)
    out = np.zeros((6, 3), dtype=np.bool_)
    router.bundle(covers).mark(points, out)
    np.testing.assert_array_equal(out, expected)


@routers
@pytest.mark.parametrize("workload", [uniform(2), uniform(8), zipf(4, 1.0), market()], ids=lambda w: w.name)
def test_large_covers_agree_with_the_definition(name: str, workload: Workload) -> None:
    rng = np.random.default_rng(2)
    lo, hi = workload.rectangles(rng, 1500)
    points = np.vstack([workload.points(rng, 150), lo[:25], hi[:25]])
    out = np.zeros((len(points), 1), dtype=np.bool_)
    router = new_router(name)
    router.bundle([(0, router.cover(lo, hi))]).mark(points, out)
    np.testing.assert_array_equal(out[:, 0], inside_any(points, lo, hi))


@routers
def test_a_cover_of_many_small_rectangles_is_searched_to_its_end(name: str) -> None:
    """No point lies in a large rectangle, so each is found by the bitsets or not at all."""
    rng = np.random.default_rng(3)
    lo = rng.random((5000, 3)) * 10
    hi = lo + 0.05
    points = np.vstack([lo[::50] + 0.02, rng.random((100, 3)) * 10])
    router = new_router(name)
    out = np.zeros((len(points), 1), dtype=np.bool_)
    router.bundle([(0, router.cover(lo, hi))]).mark(points, out)
    np.testing.assert_array_equal(out[:, 0], inside_any(points, lo, hi))
    assert out[:100].all()


@routers
def test_what_was_set_before_stays_set(name: str) -> None:
    router = new_router(name)
    out = np.array([[True, False], [False, True]])
    router.bundle([(0, router.cover(np.array([[5.0]]), np.array([[6.0]])))]).mark(
        np.array([[0.0], [5.5]]), out
    )
    assert out.tolist() == [[True, False], [True, True]]


def test_an_unknown_router_is_named() -> None:
    with pytest.raises(ValueError, match="router must be one of bitmap, rtree, got 'quadtree'"):
        new_router("quadtree")


def test_a_cover_of_another_router_is_refused_and_not_left_out() -> None:
    bounds = np.zeros((1, 1)), np.ones((1, 1))
    bitmap, rtree = new_router("bitmap"), new_router("rtree")
    with pytest.raises(TypeError, match="cover must be a RtreeCover, got BitmapCover"):
        rtree.bundle([(0, bitmap.cover(*bounds))])
    with pytest.raises(TypeError, match="cover must be a BitmapCover, got RtreeCover"):
        bitmap.bundle([(0, rtree.cover(*bounds))])
