"""The measure respects containment, bounds and missing values."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edn.summary.measure import EVEN_SHARE, MISSING_SHARE, _unit_column, unit_rects

INF = float("inf")
LARGEST = float(np.finfo(np.float64).max)

bounds = st.one_of(
    st.sampled_from([-INF, -LARGEST, LARGEST, INF, 0.0, -0.0, 5e-324]), st.floats(allow_nan=False, width=64)
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(bounds, bounds).map(sorted), min_size=1, max_size=20))
def test_containment_survives_the_map_into_the_unit_cube(pairs: list[list[float]]) -> None:
    lo = np.array([[low] for low, _ in pairs])
    hi = np.array([[high] for _, high in pairs])
    a, b = unit_rects(lo, hi)
    assert (a >= 0).all()
    assert (b <= 1).all()
    assert (a <= b).all()
    for i in range(len(pairs)):
        for j in range(len(pairs)):
            if lo[i, 0] <= lo[j, 0] and hi[i, 0] >= hi[j, 0]:
                assert a[i, 0] <= a[j, 0]
                assert b[i, 0] >= b[j, 0]
            # The largest doubles count as infinite; all others keep their distance.
            if hi[i, 0] < lo[j, 0] and abs(hi[i, 0]) < LARGEST and abs(lo[j, 0]) < LARGEST:
                assert b[i, 0] <= a[j, 0]


def test_unconstrained_is_everything_present_is_all_but_missing_and_absent_is_missing() -> None:
    lo = np.array([[-INF], [-LARGEST], [-INF], [3.0]])
    hi = np.array([[INF], [INF], [-INF], [4.0]])
    a, b = unit_rects(lo, hi)
    assert (a[0, 0], b[0, 0]) == (0.0, 1.0)
    assert (a[1, 0], b[1, 0]) == (MISSING_SHARE, 1.0)
    assert (a[2, 0], b[2, 0]) == (0.0, MISSING_SHARE)
    assert MISSING_SHARE < a[3, 0] < b[3, 0] < 1.0


def test_a_value_that_many_ask_for_alone_is_larger_than_one_that_few_ask_for() -> None:
    values = np.array([[1.0]] * 9 + [[2.0]])
    a, b = unit_rects(values, values)
    assert 5 * (b[9, 0] - a[9, 0]) < b[0, 0] - a[0, 0]
    assert b[9, 0] > a[9, 0]


def test_a_dimension_that_nobody_constrains_has_no_say() -> None:
    lo = np.array([[0.0, -INF], [1.0, -INF]])
    hi = np.array([[2.0, INF], [3.0, INF]])
    a, b = unit_rects(lo, hi)
    assert (b[:, 1] - a[:, 1] == 1.0).all()


def test_a_wide_gap_is_larger_than_a_narrow_one_between_as_many_borders() -> None:
    lo = np.array([[0.0], [1.0], [3.0]])
    hi = np.array([[1.0], [3.0], [10.0]])
    a, b = unit_rects(lo, hi)
    narrow, middle, wide = (b - a)[:, 0]
    assert 1.5 * narrow < middle
    assert 1.5 * middle < wide
    a, b = unit_rects(lo, hi, even=0.0)
    assert (b - a)[2, 0] < 1.5 * (b - a)[0, 0]


def test_values_that_nobody_can_halve_have_no_width() -> None:
    lo, hi = np.array([[0.0]]), np.array([[5e-324]])
    a, b = unit_rects(lo, hi)
    assert MISSING_SHARE < a[0, 0] < b[0, 0] <= 1.0


def test_columns_that_nothing_constrains_are_the_whole_unit() -> None:
    """They are left out, and get what they would have got."""
    rng = np.random.default_rng(3)
    lo, hi = np.full((20, 6), -np.inf), np.full((20, 6), np.inf)
    one, other = rng.integers(0, 9, (2, 20))
    lo[:, 2], hi[:, 2] = np.minimum(one, other), np.maximum(one, other)
    lo[3, 4] = hi[3, 4] = -np.inf
    a, b = unit_rects(lo, hi)
    for column in range(6):
        expected = _unit_column(lo[:, column], hi[:, column], EVEN_SHARE)
        np.testing.assert_array_equal(a[:, column], expected[0])
        np.testing.assert_array_equal(b[:, column], expected[1])
