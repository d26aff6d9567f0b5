"""Reduces a summary to a few attributes: the others become unconstrained, and many rectangles coincide.

Another form of imprecision: fewer rectangles and more false positives. The other columns stay, unconstrained,
so that columns mean the same in every summary.
"""

from __future__ import annotations

import numpy as np

from edn.arrays import Floats, Ints
from edn.summary.hierarchy import Summary
from edn.summary.maximal import Maximal
from edn.summary.measure import unit_rects


def most_selective(lo: Floats, hi: Floats, attributes: int) -> Ints:
    """Returns the columns that exclude most events by `edn.summary.measure`, in column order."""
    a, b = unit_rects(lo, hi)
    # The logarithm of a volume is a sum over the columns; a width of zero counts as one in a million.
    ruled_out = -np.log(np.maximum(b - a, 1e-6)).sum(axis=0)
    return np.sort(np.argsort(-ruled_out, kind="stable")[:attributes])


def select(lo: Floats, hi: Floats, columns: Ints) -> tuple[Floats, Floats]:
    """Returns the maximal rectangles if all other columns are unconstrained."""
    n, d = lo.shape
    wide_lo, wide_hi = np.full((n, d), -np.inf), np.full((n, d), np.inf)
    wide_lo[:, columns] = lo[:, columns]
    wide_hi[:, columns] = hi[:, columns]
    maximal = Maximal(d)
    maximal.insert(range(n), wide_lo, wide_hi)
    return maximal.rects()


def selected(summary: Summary, attributes: int) -> Summary:
    """Returns a summary over the most selective attributes; the summary itself if it has no more."""
    if attributes >= summary.dimensions or not summary.count:
        return summary
    lo, hi = summary.rects()
    return Summary.build(*select(lo, hi, most_selective(lo, hi, attributes)))
