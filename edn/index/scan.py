"""The `scan` matcher: compares every rectangle with every point. Slow and simple, a reference."""

from __future__ import annotations

import numpy as np

from edn.arrays import Floats, Ints
from edn.index.matcher import checked_growth, checked_ids, checked_points, checked_rectangles, duplicate_id


class ScanMatcher:
    """A `Matcher` over three arrays; every change replaces them as one tuple."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._rows: tuple[Ints, Floats, Floats] = (
            np.empty(0, np.int64),
            np.empty((0, dimensions)),
            np.empty((0, dimensions)),
        )

    @property
    def dimensions(self) -> int:
        return self._dimensions

    def __len__(self) -> int:
        return len(self._rows[0])

    def insert(self, ids: Ints, lo: Floats, hi: Floats) -> None:
        ids, lo, hi = checked_rectangles(self._dimensions, ids, lo, hi)
        here = np.isin(ids, self._rows[0])
        if here.any():
            raise duplicate_id(int(ids[here][0]))
        old_ids, old_lo, old_hi = self._rows
        self._rows = (
            np.concatenate((old_ids, ids)),
            np.concatenate((old_lo, lo)),
            np.concatenate((old_hi, hi)),
        )

    def delete(self, ids: Ints) -> None:
        kept = ~np.isin(self._rows[0], checked_ids(ids))
        self._rows = (self._rows[0][kept], self._rows[1][kept], self._rows[2][kept])

    def grow(self, dimensions: int) -> None:
        checked_growth(self._dimensions, dimensions)
        self._rows = checked_rectangles(dimensions, *self._rows)
        self._dimensions = dimensions

    def match(self, points: Floats) -> tuple[Ints, Ints]:
        ids, lo, hi = self._rows
        points = checked_points(lo.shape[1], points)
        found = [ids[((lo <= point) & (point <= hi)).all(axis=1)] for point in points]
        starts = np.zeros(len(found) + 1, np.int64)
        np.cumsum([len(some) for some in found], out=starts[1:])
        return starts, np.concatenate(found) if found else np.empty(0, np.int64)
