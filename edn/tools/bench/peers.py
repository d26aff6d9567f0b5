"""Other indexes for the kernel benchmarks, each called in its fastest way.

A peer of matching is built from rectangles and returns `(starts, ids)` for points, like an
`edn.index.Matcher`.
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
#: the timed part of a peer, with the points already converted
Ask = Callable[[], Matches]
#: (lo, hi, points) → the timed part
Peer = Callable[[Floats, Floats, Floats], Ask]


def new_tree(lo: Floats, hi: Floats) -> Index:
    """Returns an R-tree of `rtree`, bulk-loaded, which is also faster to query."""
    return Index((np.arange(len(lo)), lo, hi), properties=Property(dimension=lo.shape[1]))


def rtree_one_by_one(lo: Floats, hi: Floats, points: Floats) -> Ask:
    """Calls `intersection` of `rtree` per point."""
    tree = new_tree(lo, hi)
    corners = [tuple(row) for row in np.hstack((points, points)).tolist()]
    return lambda: _joined([list(tree.intersection(corner)) for corner in corners])


def rtree_at_once(lo: Floats, hi: Floats, points: Floats) -> Ask:
    """Calls `intersection_v` of `rtree` for all points."""
    tree = new_tree(lo, hi)

    def ask() -> Matches:
        ids, counts = tree.intersection_v(points, points)  # type: ignore[no-untyped-call]  # it has no types
        return np.concatenate(((0,), np.cumsum(counts, dtype=np.int64))), ids

    return ask


def sqlite(lo: Floats, hi: Floats, points: Floats) -> Ask:
    """Queries SQLite's R*Tree, in memory.

    It stores bounds as 32-bit floats, rounded outwards, so numpy compares its results with the exact bounds;
    as auxiliary columns they would take twice as long.
    """
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
    """Returns whether SQLite was built with its R*Tree, which has at most five dimensions."""
    try:
        sqlite3.connect(":memory:").execute("CREATE VIRTUAL TABLE probe USING rtree(id, lo, hi)")
    except sqlite3.OperationalError:
        return False
    return dimensions <= 5


def brute_force(lo: Floats, hi: Floats, points: Floats) -> Ask:
    """Compares with numpy, column by column, so that most rectangles are compared in one column only."""
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
    """Calls `count` of `rtree` per point and tree."""
    corners = [tuple(row) for row in np.hstack((points, points)).tolist()]
    return lambda: np.array([[tree.count(corner) > 0 for tree in trees] for corner in corners])


def same(one: Matches, other: Matches) -> bool:
    """Returns whether two answers have the same ids for every point."""
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
