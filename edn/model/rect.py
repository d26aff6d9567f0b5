"""Rectangles in a topic's space: what a filter looks like to an index and to a summary.

A rectangle is closed on every side: it contains the points with `lo[d] <= x[d] <= hi[d]` in every column d.
Missing is a coordinate below all values, so that no kernel needs to know that attributes can be missing:

    unconstrained   [MISSING, +inf]
    absent          [MISSING, MISSING]
    present         [LOWEST, +inf]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from edn.arrays import Bools, Floats

#: the coordinate of an attribute that an event does not have
MISSING = float("-inf")
#: the lowest coordinate that a value can have
LOWEST = -sys.float_info.max


@dataclass(frozen=True, slots=True)
class Rects:
    """A union of rectangles; together they contain every point that the filter matches."""

    #: float64 (n, d)
    lo: Floats
    #: float64 (n, d)
    hi: Floats
    #: bool (n,): every event whose point lies inside matches; elsewhere the exact predicate decides
    exact: Bools

    def __len__(self) -> int:
        return len(self.exact)

    @property
    def width(self) -> int:
        return int(self.lo.shape[1])

    def contain(self, points: Floats) -> Bools:
        """(points, rectangles): which rectangle contains which point. For explanations and tests, not hot."""
        inside = (self.lo[None] <= points[:, None]) & (points[:, None] <= self.hi[None])
        contained: Bools = np.logical_and.reduce(inside, axis=2)
        return contained
