"""Rectangles in a topic's space: the form of filters in indexes and summaries.

A rectangle is closed: it contains the points with `lo[d] <= x[d] <= hi[d]` in every column d. A missing
value is a coordinate below all values, so kernels need no special case for it:

    unconstrained   [MISSING, +inf]
    absent          [MISSING, MISSING]
    present         [LOWEST, +inf]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from edn.arrays import Bools, Floats

#: coordinate of a missing attribute
MISSING = float("-inf")
#: lowest coordinate of a value
LOWEST = -sys.float_info.max


@dataclass(frozen=True, slots=True)
class Rects:
    """A union of rectangles that contains every point that the filter matches."""

    #: float64 (n, d)
    lo: Floats
    #: float64 (n, d)
    hi: Floats
    #: bool (n,): every event inside matches; otherwise the predicate decides
    exact: Bools

    def __len__(self) -> int:
        return len(self.exact)

    @property
    def width(self) -> int:
        return int(self.lo.shape[1])

    def contain(self, points: Floats) -> Bools:
        """Computes which rectangle contains which point, as (points, rectangles). Not for the hot path."""
        inside = (self.lo[None] <= points[:, None]) & (points[:, None] <= self.hi[None])
        contained: Bools = np.logical_and.reduce(inside, axis=2)
        return contained
