"""The `rtree` matcher: libspatialindex, through the package `rtree`.

libspatialindex multiplies extents and crashes the process when a product overflows, as with infinite bounds.
So coordinates are mapped monotonically into [0, 1] first. That only loses precision: the tree finds all
rectangles that match, and the true bounds decide.
"""

from __future__ import annotations

import threading

import numpy as np
from rtree.index import Index, Property

from edn.arrays import Floats, Ints
from edn.index.matcher import (
    checked_growth,
    checked_ids,
    checked_points,
    checked_rectangles,
    duplicate_id,
    widened,
)


class RtreeMatcher:
    """A tree of mapped rectangles and a table of the true ones, with one lock, as the library has none."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._lock = threading.Lock()
        #: id → row of the table; the tree contains rows
        self._rows: dict[int, int] = {}
        self._free: list[int] = []
        self._ids = np.empty(0, np.int64)
        self._lo = np.empty((0, dimensions))
        self._hi = np.empty((0, dimensions))
        self._tree = self._new_tree(self._ids)

    @property
    def dimensions(self) -> int:
        return self._dimensions

    def __len__(self) -> int:
        return len(self._rows)

    def insert(self, ids: Ints, lo: Floats, hi: Floats) -> None:
        ids, lo, hi = checked_rectangles(self._dimensions, ids, lo, hi)
        with self._lock:
            for id_ in ids.tolist():
                if id_ in self._rows:
                    raise duplicate_id(id_)
            rows = self._take_rows(len(ids))
            self._ids[rows], self._lo[rows], self._hi[rows] = ids, lo, hi
            bulk = not self._rows
            self._rows.update(zip(ids.tolist(), rows.tolist(), strict=True))
            if bulk:
                self._tree = self._new_tree(rows)
                return
            some, low, high = self._squashed(rows)
            for row, corner in zip(some.tolist(), np.hstack((low, high)), strict=True):
                self._tree.insert(row, corner)

    def delete(self, ids: Ints) -> None:
        with self._lock:
            for id_ in checked_ids(ids).tolist():
                row = self._rows.pop(id_, None)
                if row is None:
                    continue
                some, low, high = self._squashed(np.array([row]))
                if len(some):
                    self._tree.delete(row, np.hstack((low[0], high[0])))
                self._free.append(row)

    def grow(self, dimensions: int) -> None:
        checked_growth(self._dimensions, dimensions)
        with self._lock:
            self._lo = widened(self._lo, dimensions, -np.inf)
            self._hi = widened(self._hi, dimensions, np.inf)
            self._dimensions = dimensions
            self._tree = self._new_tree(np.fromiter(self._rows.values(), np.int64, len(self._rows)))

    def match(self, points: Floats) -> tuple[Ints, Ints]:
        with self._lock:
            points = checked_points(self._dimensions, points)
            squashed = _squash(points)
            found = self._tree.intersection_v(squashed, squashed)  # type: ignore[no-untyped-call]  # it has no types
            rows, counts = found[0].astype(np.int64), found[1].astype(np.int64)
            owner = np.repeat(np.arange(len(points)), counts)
            x = points[owner]
            inside = ((self._lo[rows] <= x) & (x <= self._hi[rows])).all(axis=1)
            ids = self._ids[rows[inside]]
        starts = np.zeros(len(points) + 1, np.int64)
        np.cumsum(np.bincount(owner[inside], minlength=len(points)), out=starts[1:])
        return starts, ids

    def _take_rows(self, count: int) -> Ints:
        if len(self._free) < count:
            old = len(self._ids)
            new = max(2 * old, old + count, 64)
            self._ids = np.concatenate((self._ids, np.full(new - old, -1)))
            self._lo = np.concatenate((self._lo, np.zeros((new - old, self._dimensions))))
            self._hi = np.concatenate((self._hi, np.zeros((new - old, self._dimensions))))
            self._free.extend(range(new - 1, old - 1, -1))
        taken = self._free[len(self._free) - count :]
        del self._free[len(self._free) - count :]
        return np.array(taken, np.int64)

    def _squashed(self, rows: Ints) -> tuple[Ints, Floats, Floats]:
        """Returns the rows with non-empty rectangles, and their mapped corners."""
        rows = rows[(self._lo[rows] <= self._hi[rows]).all(axis=1)]
        return rows, _squash(self._lo[rows]), _squash(self._hi[rows])

    def _new_tree(self, rows: Ints) -> Index:
        rows, low, high = self._squashed(rows)
        properties = Property(dimension=max(2, self._dimensions))
        if not len(rows):
            return Index(properties=properties)
        return Index((rows, low, high), properties=properties)


def _squash(coordinates: Floats) -> Floats:
    """Maps doubles to [0, 1] by their rank among all doubles.

    The result has at least two columns, which the tree requires.
    """
    # + 0.0 turns -0.0 into 0.0
    bits = (coordinates + 0.0).view(np.int64)
    ordered = np.where(bits < 0, np.iinfo(np.int64).min - bits, bits)
    squashed = ordered * 2.0**-64 + 0.5
    if squashed.shape[1] < 2:
        squashed = widened(squashed, 2, 0.5)
    return np.ascontiguousarray(squashed)
