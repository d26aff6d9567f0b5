"""Competing indexes for the kernel benchmarks, each called in its fastest way.

A peer of matching takes rectangles once and answers, for points, `(starts, ids)` like an `edn.index.Matcher`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence, Sized
from itertools import chain

import numpy as np
import numpy.typing as npt
from rtree.index import Index, Property

from edn.arrays import Floats, Ints

Matches = tuple[Ints, Ints]
#: the timed part of a peer, with the points already in the form that it wants
Ask = Callable[[], Matches]
#: (lo, hi, points) → the timed part
Peer = Callable[[Floats, Floats, Floats], Ask]


def new_tree(lo: Floats, hi: Floats) -> Index:
    """An R-tree of `rtree`, packed in one go, which also answers faster than one that was grown."""
    return Index((np.arange(len(lo)), lo, hi), properties=Property(dimension=lo.shape[1]))


def rtree_one_by_one(lo: Floats, hi: Floats, points: Floats) -> Ask:
    """`rtree`'s `intersection`, called for each point."""
    tree = new_tree(lo, hi)
    corners = [tuple(row) for row in np.hstack((points, points)).tolist()]
    return lambda: _joined([list(tree.intersection(corner)) for corner in corners])


def rtree_at_once(lo: Floats, hi: Floats, points: Floats) -> Ask:
    """`rtree`'s `intersection_v`, called for all points."""
    tree = new_tree(lo, hi)

    def ask() -> Matches:
        ids, counts = tree.intersection_v(points, points)  # type: ignore[no-untyped-call]  # it has no types
        return np.concatenate(((0,), np.cumsum(counts, dtype=np.int64))), ids

    return ask


def sqlite(lo: Floats, hi: Floats, points: Floats) -> Ask:
    """SQLite's R*Tree, in memory. It keeps bounds as 32-bit floats, rounded outwards, so what it finds is
    compared with the true ones by numpy; as auxiliary columns of its own they would take it twice as long."""
    dimensions = lo.shape[1]
    database = sqlite3.connect(":memory:")
    bounds = ", ".join(f"lo{k}, hi{k}" for k in range(dimensions))
    database.execute(f"CREATE VIRTUAL TABLE rects USING rtree(id, {bounds})")
    sides = np.stack((lo, hi), axis=2).reshape(len(lo), -1)
    marks = ", ".join("?" * (1 + 2 * dimensions))
    database.executemany(
        f"INSERT INTO rects VALUES ({marks})", ([i, *row] for i, row in enumerate(sides.tolist()))
    )
    conditions = [f"lo{k} <= ?{k + 1} AND hi{k} >= ?{k + 1}" for k in range(dimensions)]
    query = "SELECT id FROM rects WHERE " + " AND ".join(conditions)
    rows = points.tolist()

    def ask() -> Matches:
        starts, ids = _joined([[id_ for (id_,) in database.execute(query, row)] for row in rows])
        owner = np.repeat(np.arange(len(points)), np.diff(starts))
        x = points[owner]
        inside = ((lo[ids] <= x) & (x <= hi[ids])).all(axis=1)
        starts[1:] = np.cumsum(np.bincount(owner[inside], minlength=len(points)))
        return starts, ids[inside]

    return ask


def sqlite_can(dimensions: int) -> bool:
    """Its R*Tree is an option of its build, and takes five dimensions at most."""
    try:
        sqlite3.connect(":memory:").execute("CREATE VIRTUAL TABLE probe USING rtree(id, lo, hi)")
    except sqlite3.OperationalError:
        return False
    return dimensions <= 5


def brute_force(lo: Floats, hi: Floats, points: Floats) -> Ask:
    """numpy, column by column, so that most rectangles are compared in one column only."""
    columns = [(np.ascontiguousarray(lo[:, k]), np.ascontiguousarray(hi[:, k])) for k in range(lo.shape[1])]

    def ask() -> Matches:
        found = []
        for point in points:
            low, high = columns[0]
            left = np.flatnonzero((low <= point[0]) & (point[0] <= high))
            for (low, high), x in zip(columns[1:], point[1:], strict=True):
                left = left[(low[left] <= x) & (x <= high[left])]
            found.append(left)
        return _starts(found), np.concatenate(found)

    return ask


def tree_counts(trees: Sequence[Index], points: Floats) -> Callable[[], npt.NDArray[np.bool_]]:
    """`rtree`'s `count`, for each point and tree: whether the tree has anything there."""
    corners = [tuple(row) for row in np.hstack((points, points)).tolist()]
    return lambda: np.array([[tree.count(corner) > 0 for tree in trees] for corner in corners])


def same(one: Matches, other: Matches) -> bool:
    """Whether two answers name the same ids for every point."""
    if not np.array_equal(one[0], other[0]):
        return False
    owner = np.repeat(np.arange(len(one[0]) - 1), np.diff(one[0]))
    first, second = (answer[1][np.lexsort((answer[1], owner))] for answer in (one, other))
    return np.array_equal(first, second)


def _starts(found: Sequence[Sized]) -> Ints:
    starts = np.zeros(len(found) + 1, np.int64)
    np.cumsum([len(some) for some in found], out=starts[1:])
    return starts


def _joined(found: list[list[int]]) -> Matches:
    starts = _starts(found)
    return starts, np.fromiter(chain.from_iterable(found), np.int64, int(starts[-1]))
