"""A summary of a few attributes only: the others count as unconstrained, and many rectangles fall together.

It is one more way to be imprecise: fewer rectangles, which let more events through. The columns that are
left out stay, as open ones, so that a summary's columns mean the same everywhere.
"""

from __future__ import annotations

import numpy as np

from edn.arrays import Floats, Ints
from edn.summary.hierarchy import Summary
from edn.summary.maximal import Maximal
from edn.summary.measure import unit_rects


def most_selective(lo: Floats, hi: Floats, attributes: int) -> Ints:
    """The columns that rule out most events, by the rectangles' own measure, in column order."""
    a, b = unit_rects(lo, hi)
    # The logarithm of a volume is a sum over the columns; a width of zero still counts as one in a million.
    ruled_out = -np.log(np.maximum(b - a, 1e-6)).sum(axis=0)
    return np.sort(np.argsort(-ruled_out, kind="stable")[:attributes])


def select(lo: Floats, hi: Floats, columns: Ints) -> tuple[Floats, Floats]:
    """The maximal rectangles of what is left when all other columns are unconstrained."""
    n, d = lo.shape
    wide_lo, wide_hi = np.full((n, d), -np.inf), np.full((n, d), np.inf)
    wide_lo[:, columns] = lo[:, columns]
    wide_hi[:, columns] = hi[:, columns]
    maximal = Maximal(d)
    maximal.insert(range(n), wide_lo, wide_hi)
    return maximal.rects()


def selected(summary: Summary, attributes: int) -> Summary:
    """The summary over that many attributes, those that rule out most; itself where it has no more."""
    if attributes >= summary.dimensions or not summary.count:
        return summary
    lo, hi = summary.rects()
    return Summary.build(*select(lo, hi, most_selective(lo, hi, attributes)))
