"""The shape of a hierarchy: grafts are valid trees, prices are correct, and the choice pays off."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edn.arrays import Floats, Ints
from edn.summary import Maximal, Summary, opening, tree
from edn.summary.shaping import graft, shape
from edn.tools.bench.workloads import Workload, uniform, zipf


def unit_rectangles(seed: int, n: int, d: int) -> tuple[Floats, Floats]:
    one, other = np.random.default_rng(seed).random((2, n, d))
    return np.minimum(one, other), np.maximum(one, other)


def leaves_below(children: Ints, node: int) -> frozenset[int]:
    n = len(children) + 1
    if node < n:
        return frozenset([node])
    return leaves_below(children, children[node - n, 0]) | leaves_below(children, children[node - n, 1])


def cut_by_closing(children: Ints, closed: Ints) -> set[frozenset[int]]:
    """The rectangles of a cut, each as the leaves that it stands for, when exactly these nodes are closed."""
    groups = [leaves_below(children, len(children) + 1 + node) for node in closed]
    groups += [frozenset([leaf]) for leaf in range(len(children) + 1)]
    return {group for group in groups if not any(group < other for other in groups)}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 25), st.integers(1, 3), st.data())
def test_a_graft_keeps_what_is_below_the_cut_and_is_a_tree(
    seed: int, n: int, d: int, data: st.DataObject
) -> None:
    a, b = unit_rectangles(seed, n, d)
    merged = tree.grow_tree(a, b, n)
    # Parents have higher numbers, so this closes children first.
    closing = np.arange(n - 1)
    cut = data.draw(st.integers(2, n))
    grafted = graft(merged, closing, a, b, cut)
    assert grafted.shape == (n - 1, 2)
    assert sorted(grafted.ravel().tolist()) == list(range(2 * n - 2))
    assert (grafted < n + np.arange(n - 1)[:, None]).all()
    assert cut_by_closing(grafted, np.arange(n - cut)) == cut_by_closing(merged, closing[: n - cut])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 25), st.integers(1, 3))
def test_what_a_closing_costs_is_what_the_cut_covers_and_no_rectangle_does(seed: int, n: int, d: int) -> None:
    a, b = unit_rectangles(seed, n, d)
    children = tree.grow_tree(a, b, 4)
    points = np.random.default_rng(seed + 1).random((200, d))
    bounds_a, bounds_b = tree.bound_nodes(children, a, b)
    rows, starts, nodes = opening.uncovered(children, bounds_a, bounds_b, points, True)
    order, spent = opening.closing_order(children, np.zeros(n - 1), starts, nodes)

    def covered(lo: Floats, hi: Floats) -> Ints:
        inside = ((points[:, None] >= lo) & (points[:, None] < hi)).all(axis=2)
        return np.flatnonzero(inside.sum(axis=1))

    precise = covered(a, b)
    assert sorted([*rows, *precise]) == list(range(200))
    for closed in range(1, n):
        cut = cut_by_closing(children, order[:closed])
        lo = np.array([a[list(group)].min(axis=0) for group in cut])
        hi = np.array([b[list(group)].max(axis=0) for group in cut])
        assert spent[closed - 1] == len(covered(lo, hi)) - len(precise)


@pytest.mark.parametrize("n", [2, 3, 40, 1100])
def test_every_size_gets_a_hierarchy_whose_parents_close_after_their_children(n: int) -> None:
    a, b = unit_rectangles(n, n, 3)
    children, closing = shape(a, b)
    assert sorted(closing.tolist()) == list(range(n - 1))
    place = np.empty(n - 1, dtype=np.int64)
    place[closing] = np.arange(n - 1)
    inner = children >= n
    parents = np.broadcast_to(np.arange(n - 1)[:, None], children.shape)[inner]
    assert (place[children[inner] - n] < place[parents]).all()


def share(cut: tuple[Floats, Floats], points: Floats) -> float:
    lo, hi = cut
    inside = np.zeros(len(points), dtype=np.bool_)
    for low, high in zip(lo, hi, strict=True):
        inside |= ((points >= low) & (points <= high)).all(axis=1)
    return float(inside.mean())


@pytest.mark.parametrize(
    "workload", [uniform(4), uniform(8), zipf(4, 1.0)], ids=lambda workload: workload.name
)
@pytest.mark.parametrize("even", [0.0, 1.0])
def test_a_cut_lets_no_more_through_than_the_published_way(workload: Workload, even: float) -> None:
    rng = np.random.default_rng(31)
    maximal = Maximal(workload.dimensions)
    maximal.insert(range(1500), *workload.rectangles(rng, 1500))
    points = workload.points(rng, 4000)
    ours = Summary.build(*maximal.rects())
    published = Summary.build(*maximal.rects(), split_only=True, even=even)
    for precision in (0.1, 0.25, 0.5):
        k = max(1, round(precision * ours.count))
        assert share(ours.cut(k), points) <= share(published.cut(k, by="level"), points)


def test_rectangles_that_differ_by_next_to_nothing_are_split_in_halves() -> None:
    """As in the published measure, by widths alone; compiled, a bin of no number would be written to."""
    b = np.array([[number * 1e-310] for number in range(1, 40)])
    key, _ = tree._choose_split.py_func(np.zeros_like(b), b, np.arange(len(b)))  # type: ignore[attr-defined]  # a kernel has it
    assert key == -1
