"""The offline methods in one process: what they promise whatever the rectangles are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edn.arrays import Floats
from edn.errors import InvalidInput
from partitioning.clustering import assign
from partitioning.methods import METHODS, PartitionOptions, partition
from partitioning.mincut import MOST_VERTICES, min_cut
from partitioning.rows import Chunk, LocalRows
from partitioning.space import Space
from partitioning.split import Volume

INF = float("inf")

pytest.importorskip("sklearn", reason="K-means needs the extra `spark`")


def random_boxes(rng: np.random.Generator, n: int, d: int) -> tuple[Floats, Floats]:
    """Some sides infinite, some of no length, many bounds equal."""
    one, other = rng.integers(0, 9, (2, n, d)).astype(np.float64)
    lo, hi = np.minimum(one, other), np.maximum(one, other)
    lo[rng.random((n, d)) < 0.2] = -INF
    hi[rng.random((n, d)) < 0.2] = INF
    hi[(rng.random((n, d)) < 0.1) & np.isneginf(lo)] = -INF
    return lo, hi


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(METHODS), st.integers(1, 6), st.integers(1, 3))
def test_every_row_gets_a_server_and_no_server_more_than_its_capacity(
    seed: int, method: str, servers: int, d: int
) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(servers, 80))
    lo, hi = random_boxes(rng, n, d)
    capacity = -(-n // servers) + int(rng.integers(0, 3))
    rows = LocalRows(lo, hi)
    wish = PartitionOptions(method=method, servers=servers, capacity=capacity, seed=seed)
    with np.errstate(all="raise"):
        parts = partition(rows, wish, rng.random((20, d)) * 9).parts(rows.whole)
    loads = np.bincount(parts, minlength=servers)
    assert len(loads) == servers
    assert loads.sum() == n
    assert loads.max() <= capacity
    if method in ("rtree", "traffic", "random"):
        assert loads.max() - loads.min() <= 1


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (PartitionOptions(method="rtree", servers=0), "servers must be at least 1, got 0"),
        (PartitionOptions(method="rtree", servers=6), "at least as many as servers .6., got 5"),
        (PartitionOptions(method="rtree", servers=2, capacity=2), "capacity must be at least 3"),
        (PartitionOptions(method="sort", servers=2), 'got "sort"'),
        (PartitionOptions(method="rtree", servers=2, distances=[1.0]), "as many as servers .2., got 1"),
    ],
)
def test_what_cannot_be_done_is_refused(wish: PartitionOptions, message: str) -> None:
    lo = np.arange(5.0)[:, None]
    with pytest.raises(InvalidInput, match=message):
        partition(LocalRows(lo, lo + 1), wish, np.empty((0, 1)))


def test_apart_is_cut_apart() -> None:
    """Two clouds: any method that looks at content finds them."""
    rng = np.random.default_rng(1)
    lo = np.vstack([rng.random((50, 2)), 20 + rng.random((50, 2))])
    rows = LocalRows(lo, lo + 0.5)
    events = np.vstack([rng.random((50, 2)), 20 + rng.random((50, 2))]) + 0.25
    for method in ("rtree", "traffic", "kmeans", "mincut"):
        parts = partition(rows, PartitionOptions(method=method, servers=2), events).parts(rows.whole)
        assert len(set(parts[:50])) == len(set(parts[50:])) == 1, method
        assert parts[0] != parts[50], method


def test_far_servers_get_the_small_side() -> None:
    """One wide and one narrow group, each half of the rows; the near server is worth the wide one."""
    lo = np.array([[0.0], [0.0], [90.0], [90.5]])
    hi = np.array([[80.0], [81.0], [91.0], [92.0]])
    space = Space.of(lo, hi)
    plain, near, far = Volume.over(space), Volume.over(space, [1.0, 10.0]), Volume.over(space, [10.0, 1.0])
    contents = plain.contents.of(LocalRows(lo, hi).whole)
    wide, narrow = plain.contents.running(contents[:2])[-1], plain.contents.running(contents[2:])[-1]
    assert near.cost(wide, narrow, range(2), 1) < far.cost(wide, narrow, range(2), 1)
    assert near.cost(wide, narrow, range(2), 1)[0] == pytest.approx((81 + 2 * 10) / 128)
    assert plain.cost(wide, narrow, range(2), 1)[0] == pytest.approx((81 + 2) / 128)


def test_a_full_server_keeps_its_nearest_and_the_others_go_to_the_next() -> None:
    centres = np.array([[0.1], [0.2], [0.3], [0.4], [0.9], [1.0]])
    # Bounds 0 and 1 are seen, so scaled centres are the centres themselves.
    rows = LocalRows(
        np.where(centres == 1.0, 1.0, np.maximum(2 * centres - 1, 0)), np.minimum(2 * centres, 1.0)
    )
    assert rows.space.base.tolist() == [0.0]
    found = assign(rows, np.array([[0.0], [1.0]]), 3)
    assert found.parts(rows.whole).tolist() == [0, 0, 0, 1, 1, 1]


def test_where_all_are_alike_the_servers_that_nobody_is_near_to_fill_up_too() -> None:
    """MLlib finds one centroid then, and the others are put where nobody is."""
    rows = LocalRows(np.full((10, 2), 1.0), np.full((10, 2), 2.0))
    centroids = np.vstack([np.full((1, 2), 0.5), np.full((4, 2), 2.0)])
    parts = assign(rows, centroids, 4).parts(rows.whole)
    assert np.bincount(parts, minlength=5).tolist() == [4, 4, 2, 0, 0]


def test_ranges_as_short_as_numbers_can_be_apart_are_clustered() -> None:
    """There "missing" is further away than any number."""
    bounds = np.array([[0.0], [5e-324], *([[-INF]] * 4)])
    rows = LocalRows(bounds, bounds)
    parts = assign(rows, np.array([[0.0], [1.0]]), 3).parts(rows.whole)
    assert np.bincount(parts).tolist() == [3, 3]


def test_the_minimum_cut_keeps_the_capacity_where_vertices_are_groups() -> None:
    rng = np.random.default_rng(5)
    n, servers = MOST_VERTICES + 337, 3
    lo, hi = random_boxes(rng, n, 2)
    rows = LocalRows(lo, hi)
    least = -(-n // servers)
    wish = PartitionOptions(method="mincut", servers=servers, capacity=least)
    loads = np.bincount(partition(rows, wish, rng.random((20, 2)) * 9).parts(rows.whole))
    assert loads.sum() == n
    assert loads.max() <= least


def test_random_parts_do_not_follow_the_order_of_the_rows() -> None:
    lo = np.arange(1000.0)[:, None]
    rows = LocalRows(lo, lo)
    parts = [
        partition(rows, PartitionOptions(method="random", servers=2, seed=seed), lo).parts(rows.whole)
        for seed in (1, 2)
    ]
    for one in parts:
        assert 200 < one[:500].sum() < 300
    assert (parts[0] != parts[1]).any()


def test_the_minimum_cut_of_small_graphs_is_found_or_nearly() -> None:
    """Against all divisions: never worse than it began, and the best one in most cases."""

    def cut_weight(weights: np.ndarray, label: np.ndarray) -> float:
        """Of all edges between different servers."""
        return float(weights[label[:, None] != label[None]].sum() / 2)

    best_found = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        weights = np.triu(rng.integers(0, 10, (8, 8)), 1).astype(np.float64)
        weights += weights.T
        first = np.repeat([0, 1], 4)
        label = min_cut(weights, np.ones(8, dtype=np.int64), first, 2, 4)
        assert np.bincount(label).tolist() == [4, 4]
        assert cut_weight(weights, label) <= cut_weight(weights, first)
        best = min(
            sum(weights[i, k] for i in some for k in range(8) if k not in some)
            for some in itertools.combinations(range(8), 4)
        )
        best_found += cut_weight(weights, label) == best
    assert best_found >= 20


def test_a_chunk_survives_its_bytes() -> None:
    rng = np.random.default_rng(0)
    lo, hi = random_boxes(rng, 5, 3)
    whole = LocalRows(lo, hi, servers=("a",), server=np.array([0, -1, 0, 0, -1], dtype=np.int32)).whole
    again = Chunk.from_bytes(whole.to_bytes())
    for name in ("rows", "salt", "server", "lo", "hi"):
        assert np.array_equal(getattr(whole, name), getattr(again, name))
    assert len(whole.to_bytes()) % 8 == 0


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6))
def test_clamping_keeps_order_and_containment(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lo, hi = random_boxes(rng, 12, 2)
    space = Space.of(lo, hi)
    low, high = space.clamp(lo, hi)
    assert np.isfinite(low).all()
    assert np.isfinite(high).all()
    assert (low <= high).all()
    inside = (lo[:, None] >= lo[None]).all(axis=2) & (hi[:, None] <= hi[None]).all(axis=2)
    assert ((low[:, None] >= low[None]).all(axis=2) | ~inside).all()
    assert ((high[:, None] <= high[None]).all(axis=2) | ~inside).all()
    volumes = space.volume(*space.clamp(lo, hi)) / space.whole
    assert (volumes > 0).all()
    assert (volumes <= 1).all()
    assert (~inside | (volumes[:, None] <= volumes[None])).all()


def test_huge_and_tiny_ranges_have_volumes() -> None:
    lo = np.array([[-1.7e308, 5.0, 1e-310], [0.0, 5.0, 0.0]])
    hi = np.array([[1.7e308, 5.0, 2e-310], [INF, 5.0, 0.0]])
    space = Space.of(lo, hi)
    assert np.isfinite(space.volume(*space.clamp(lo, hi)) / space.whole).all()
