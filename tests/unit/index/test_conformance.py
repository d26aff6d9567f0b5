"""Every engine against an independent brute-force search."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edn.errors import InvalidInput
from edn.index import Matcher, known_engines, new_matcher

INF = math.inf
LARGEST = 1.7976931348623157e308
SMALLEST = 5e-324

Row = tuple[list[float], list[float]]


def brute_force(rows: dict[int, Row], point: list[float]) -> set[int]:
    """What a point is inside of, in plain Python; short rows and points are padded as the contract says."""
    found = set()
    for id_, (lo, hi) in rows.items():
        width = max(len(lo), len(point))
        low, high = lo + [-INF] * (width - len(lo)), hi + [INF] * (width - len(hi))
        values = point + [-INF] * (width - len(point))
        if all(a <= x <= b for a, x, b in zip(low, values, high, strict=True)):
            found.add(id_)
    return found


def add(matcher: Matcher, rows: dict[int, Row]) -> None:
    lo = np.array([row[0] for row in rows.values()], dtype=np.float64)
    hi = np.array([row[1] for row in rows.values()], dtype=np.float64)
    matcher.insert(np.array(list(rows), dtype=np.int64), lo, hi)


def found_by(matcher: Matcher, points: list[list[float]]) -> list[set[int]]:
    """The answer of a matcher, with the form that all answers have checked."""
    starts, ids = matcher.match(
        np.array(points, dtype=np.float64).reshape(len(points), len(points[0]) if points else 0)
    )
    assert starts.dtype == ids.dtype == np.int64
    assert starts.shape == (len(points) + 1,)
    assert starts[0] == 0
    assert starts[-1] == len(ids)
    assert (np.diff(starts) >= 0).all()
    answer = [ids[a:b].tolist() for a, b in pairwise(starts)]
    for some in answer:
        assert len(some) == len(set(some)), "an id was found twice"
    return [set(some) for some in answer]


def assert_exact(matcher: Matcher, rows: dict[int, Row], points: list[list[float]]) -> None:
    assert found_by(matcher, points) == [brute_force(rows, point) for point in points]


engines = pytest.mark.parametrize("engine", known_engines())

#: values at which arithmetic goes wrong: edges of the range, of the integers that doubles hold, of zero
AWKWARD = [
    -INF, -LARGEST, -1e308, -(2.0**63), -(2.0**53) - 2, -(2.0**53), -1.0, -SMALLEST, -0.0,
    0.0, SMALLEST, 2.2250738585072014e-308, 0.1, 0.30000000000000004, 1.0, math.nextafter(1.0, 2.0),
    2.0**53, 2.0**53 + 2, 2.0**63, 1e308, LARGEST, INF,
]  # fmt: skip
coordinates = st.one_of(
    st.sampled_from(AWKWARD),
    st.integers(0, 5).map(float),
    st.floats(allow_nan=False, allow_infinity=False),
    st.just(-INF),
)


@st.composite
def intervals(draw: st.DrawFn) -> tuple[float, float]:
    kind = draw(
        st.sampled_from(("free", "free", "equal", "range", "above", "below", "absent", "present", "any"))
    )
    if kind == "free":
        return -INF, INF
    if kind == "absent":
        return -INF, -INF
    if kind == "present":
        return -LARGEST, INF
    one, other = draw(coordinates), draw(coordinates)
    if kind == "equal":
        return one, one
    if kind == "above":
        return one, INF
    if kind == "below":
        return -LARGEST, one
    if kind == "range":
        return min(one, other), max(one, other)
    return one, other  # perhaps the wrong way round: then nothing is inside


def rows_of(dimensions: int) -> st.SearchStrategy[Row]:
    return st.lists(intervals(), min_size=dimensions, max_size=dimensions).map(
        lambda sides: ([lo for lo, _ in sides], [hi for _, hi in sides])
    )


@st.composite
def problems(draw: st.DrawFn) -> tuple[int, dict[int, Row], list[list[float]]]:
    dimensions = draw(st.integers(1, 32))
    rows = draw(st.lists(rows_of(dimensions), max_size=40))
    copies = draw(st.integers(1, 4))
    used = sorted({bound for row in rows for side in row for bound in side} | {0.0})
    near = st.sampled_from(used)
    value = st.one_of(
        near, near.map(lambda x: math.nextafter(x, INF)), near.map(lambda x: math.nextafter(x, -INF))
    )
    points = draw(
        st.lists(
            st.lists(st.one_of(value, coordinates), min_size=dimensions, max_size=dimensions), max_size=20
        )
    )
    return dimensions, dict(enumerate(rows * copies)), points


@engines
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems())
def test_a_match_finds_exactly_what_contains_the_point(
    engine: str, problem: tuple[int, dict[int, Row], list[list[float]]]
) -> None:
    dimensions, rows, points = problem
    assume(points)
    matcher = new_matcher(engine, dimensions)
    if rows:
        add(matcher, rows)
    assert len(matcher) == len(rows)
    assert_exact(matcher, rows, points)


@engines
@pytest.mark.parametrize("dimensions", [*range(1, 13), 16, 24, 32])
def test_thousands_of_rectangles_in_few_and_in_many_dimensions(engine: str, dimensions: int) -> None:
    rng = np.random.default_rng(dimensions)
    count = 2500
    one, other = rng.uniform(0, 10, (2, count, dimensions))
    lo, hi = np.minimum(one, other), np.maximum(one, other)
    free = rng.random((count, dimensions)) < min(0.9, dimensions / 8)
    lo[free], hi[free] = -INF, INF
    equal = rng.random((count, dimensions)) < 0.1
    lo[equal] = hi[equal] = np.round(lo[equal])
    matcher = new_matcher(engine, dimensions)
    ids = rng.permutation(10 * count)[:count]
    matcher.insert(ids, lo, hi)
    points = rng.uniform(0, 10, (20, dimensions))
    points[::3] = np.round(points[::3])
    points[rng.random(points.shape) < 0.05] = -INF
    rows = {int(id_): (a, b) for id_, a, b in zip(ids, lo.tolist(), hi.tolist(), strict=True)}
    expected = [brute_force(rows, point) for point in points.tolist()]
    assert any(expected)
    assert found_by(matcher, points.tolist()) == expected


@engines
def test_a_closed_rectangle_contains_its_edges_and_not_their_neighbours(engine: str) -> None:
    matcher = new_matcher(engine, 2)
    rows: dict[int, Row] = {7: ([1.0, -2.0], [3.0, 2.0]), 8: ([3.0, 2.0], [5.0, 5.0])}
    add(matcher, rows)
    corner = [3.0, 2.0]
    assert found_by(matcher, [corner]) == [{7, 8}]
    assert found_by(matcher, [[math.nextafter(3.0, 9), 2.0], [3.0, math.nextafter(2.0, 0)]]) == [{8}, {7}]


@engines
def test_ten_thousand_equal_rectangles_are_all_found(engine: str) -> None:
    matcher = new_matcher(engine, 3)
    count = 10_000
    matcher.insert(np.arange(count), np.full((count, 3), 2.0), np.full((count, 3), 2.0))
    assert found_by(matcher, [[2.0, 2.0, 2.0], [2.0, 2.0, math.nextafter(2.0, 3)]]) == [
        set(range(count)),
        set(),
    ]


@engines
def test_missing_is_inside_what_is_unconstrained_and_what_asks_for_absence(engine: str) -> None:
    matcher = new_matcher(engine, 1)
    rows: dict[int, Row] = {
        0: ([-INF], [INF]),
        1: ([-INF], [-INF]),
        2: ([-LARGEST], [INF]),
        3: ([-LARGEST], [9.0]),
    }
    add(matcher, rows)
    assert found_by(matcher, [[-INF], [-LARGEST], [10.0]]) == [{0, 1}, {0, 2, 3}, {0, 2}]


@engines
def test_integers_beyond_doubles_are_told_apart_as_far_as_doubles_go(engine: str) -> None:
    matcher = new_matcher(engine, 1)
    base = 2.0**60
    rows: dict[int, Row] = {i: ([base + 256.0 * i], [base + 256.0 * i]) for i in range(300)}
    add(matcher, rows)
    assert found_by(matcher, [[base + 256.0 * i] for i in range(300)]) == [{i} for i in range(300)]


@engines
def test_narrow_rectangles_are_unconstrained_and_narrow_points_miss_values(engine: str) -> None:
    matcher = new_matcher(engine, 3)
    add(matcher, {1: ([1.0], [2.0])})
    add(matcher, {2: ([1.0, 0.0, 0.0], [2.0, 9.0, 9.0])})
    assert found_by(matcher, [[1.5]]) == [{1}]
    assert found_by(matcher, [[1.5, 1.0, 1.0]]) == [{1, 2}]


@engines
def test_without_columns_everything_contains_every_point(engine: str) -> None:
    matcher = new_matcher(engine, 0)
    matcher.insert(np.array([4, 5]), np.empty((2, 0)), np.empty((2, 0)))
    assert found_by(matcher, [[], []]) == [{4, 5}, {4, 5}]
    matcher.grow(2)
    add(matcher, {6: ([0.0, 0.0], [1.0, 1.0])})
    assert found_by(matcher, [[0.5, 0.5], [-INF, -INF]]) == [{4, 5, 6}, {4, 5}]


@engines
def test_arrays_that_may_not_be_written_or_are_not_contiguous_are_taken(engine: str) -> None:
    matcher = new_matcher(engine, 2)
    lo, hi = np.asfortranarray([[0.0, 0.0], [1.0, 1.0]]), np.asfortranarray([[2.0, 2.0], [3.0, 3.0]])
    matcher.insert(np.array([1, 0, 2, 0])[::2], lo, hi)
    frozen = np.frombuffer(np.array([1.5, 1.5]).tobytes()).reshape(1, 2)
    starts, ids = matcher.match(frozen)
    assert starts.tolist() == [0, 2]
    assert sorted(ids.tolist()) == [1, 2]


@engines
def test_no_points_have_no_matches(engine: str) -> None:
    matcher = new_matcher(engine, 2)
    add(matcher, {1: ([0.0, 0.0], [1.0, 1.0])})
    assert found_by(matcher, []) == []


@engines
def test_wrong_inputs_are_refused_and_change_nothing(engine: str) -> None:
    matcher = new_matcher(engine, 2)
    add(matcher, {1: ([0.0, 0.0], [1.0, 1.0])})
    one = np.zeros((1, 2))
    cases: list[tuple[str, Any]] = [
        ("already in the index", lambda: matcher.insert(np.array([1]), one, one)),
        (
            "must be unique, got 2 twice",
            lambda: matcher.insert(np.array([2, 2]), np.zeros((2, 2)), np.zeros((2, 2))),
        ),
        ("must be 0 or more, got -3", lambda: matcher.insert(np.array([-3]), one, one)),
        ("must have equal lengths, got 2, 1 and 1", lambda: matcher.insert(np.array([2, 3]), one, one)),
        ("at most 2 columns", lambda: matcher.insert(np.array([2]), np.zeros((1, 3)), np.zeros((1, 3)))),
        ("at most 2 columns", lambda: matcher.match(np.zeros((1, 3)))),
        ("at most 2 columns", lambda: matcher.match(np.zeros(2))),
        ("must be a vector", lambda: matcher.delete(np.zeros((1, 1), np.int64))),
        ("got NaN in row 1, column 0", lambda: matcher.match(np.array([[0, 0], [np.nan, 0]]))),
        ("must be 2 or more, got 1", lambda: matcher.grow(1)),
    ]
    for message, call in cases:
        with pytest.raises(InvalidInput) as refused:
            call()
        assert message in refused.value.detail
    assert len(matcher) == 1
    assert found_by(matcher, [[0.5, 0.5]]) == [{1}]


class Life(RuleBasedStateMachine):
    """Inserts, deletions, growth and matches in any order, against a dictionary."""

    engine: str

    @initialize(dimensions=st.integers(0, 6))
    def start(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.matcher = new_matcher(self.engine, dimensions)
        self.rows: dict[int, Row] = {}

    @rule(data=st.data())
    def insert(self, data: st.DataObject) -> None:
        fresh = st.integers(0, 60).filter(lambda id_: id_ not in self.rows)
        if len(self.rows) > 50:
            return
        ids = data.draw(st.lists(fresh, max_size=6, unique=True))
        width = data.draw(st.integers(0, self.dimensions))
        new = {id_: data.draw(rows_of(width)) for id_ in ids}
        if new:
            lo = np.array([row[0] for row in new.values()]).reshape(len(new), width)
            hi = np.array([row[1] for row in new.values()]).reshape(len(new), width)
            self.matcher.insert(np.array(list(new), dtype=np.int64), lo, hi)
            self.rows.update(new)

    @rule(copies=st.integers(60, 3000), data=st.data())
    def insert_many_of_one_kind_and_delete_most(self, copies: int, data: st.DataObject) -> None:
        """Fills and recodes tails, makes segments, and starts merges in the background."""
        lo, hi = data.draw(rows_of(self.dimensions))
        ids = np.arange(1000, 1000 + copies)
        shape = (copies, self.dimensions)
        self.matcher.insert(ids, np.broadcast_to(lo, shape), np.broadcast_to(hi, shape))
        kept = {1000: (lo, hi), 1000 + copies - 1: (lo, hi)}
        self.matcher.delete(ids[1:-1])
        point = [a if a == a and a > -INF else b for a, b in zip(lo, hi, strict=True)]
        assert_exact(self.matcher, {**self.rows, **kept}, [point])
        self.matcher.delete(ids)

    @rule(ids=st.lists(st.integers(0, 60), max_size=10))
    def delete(self, ids: list[int]) -> None:
        self.matcher.delete(np.array(ids, dtype=np.int64))
        for id_ in ids:
            self.rows.pop(id_, None)

    @rule(more=st.integers(0, 3))
    def grow(self, more: int) -> None:
        self.dimensions = min(32, self.dimensions + more)
        self.matcher.grow(self.dimensions)

    @rule(data=st.data())
    def match(self, data: st.DataObject) -> None:
        used = sorted({bound for row in self.rows.values() for side in row for bound in side} | {0.0})
        width = data.draw(st.integers(0, self.dimensions))
        value = st.one_of(st.sampled_from(used), coordinates)
        points = data.draw(st.lists(st.lists(value, min_size=width, max_size=width), min_size=1, max_size=5))
        assert_exact(self.matcher, self.rows, points)

    @invariant()
    def has_as_many_as_it_should(self) -> None:
        if hasattr(self, "matcher"):
            assert len(self.matcher) == len(self.rows)
            assert self.matcher.dimensions == self.dimensions


@engines
def test_any_life_of_a_matcher_agrees_with_a_dictionary(engine: str) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    life = type(f"Life of {engine}", (Life,), {"engine": engine})
    # the tree takes a rectangle at a time
    examples = 10 if engine == "rtree" else 40
    budget = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(life, settings=budget)
