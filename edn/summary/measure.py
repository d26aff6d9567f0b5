"""How large a rectangle is while nothing is known of the events: a bounded measure from the bounds at hand.

Coordinates have no common scale, and many sides are infinite or have no width, so plain volumes are useless.
Each dimension is therefore cut into cells at the distinct bounds v_1 < v_2 < … of the rectangles themselves:
one for "missing", one for each gap between two bounds, and one for each bound. No rectangle divides a cell.
A gap weighs as much as the bounds beside it, so that a region is large where people draw many borders; a
single value weighs as much as the rectangles that ask for exactly it. Laying the cells side by side, in
their order, maps every rectangle into [0, 1]^d, where its plain volume is the share of events that it
should catch.
"""

from __future__ import annotations

import numpy as np

from edn.summary.kernels import Floats

#: share of the events that lack an attribute, where some rectangle cares about that
MISSING_SHARE = 0.05
#: a value that nobody names alone, relative to one border there; and a gap beside values that are named alone
_FAINT = 0.02

_LARGEST = np.finfo(np.float64).max


def unit_rects(lo: Floats, hi: Floats) -> tuple[Floats, Floats]:
    """The rectangles in [0, 1]^d; a point u of it lies in one when a <= u < b."""
    a = np.empty_like(lo)
    b = np.empty_like(hi)
    for j in range(lo.shape[1]):
        a[:, j], b[:, j] = _unit_column(lo[:, j], hi[:, j])
    return a, b


def _unit_column(lo: Floats, hi: Floats) -> tuple[Floats, Floats]:
    alone = lo == hi
    pooled = np.concatenate([lo[~alone], hi[~alone]])
    values, place = np.unique(np.concatenate([pooled, lo[alone]]), return_inverse=True)
    inside = np.abs(values) < _LARGEST
    borders = np.bincount(place[: len(pooled)], minlength=len(values)).astype(np.float64)
    named = np.bincount(place[len(pooled) :], minlength=len(values)).astype(np.float64)
    values, borders, named = values[inside], borders[inside], named[inside]

    missing = MISSING_SHARE if np.isfinite(lo).any() or np.isneginf(hi).any() else 0.0
    # Cells in their order: gap, value, gap, …, value, gap; an edge of the space is half a border away.
    cells = np.empty(2 * len(values) + 1)
    cells[1::2] = named + _FAINT * borders
    beside = 0.5 * borders + _FAINT * named
    cells[0::2] = np.concatenate([beside, [0.0]]) + np.concatenate([[0.0], beside])
    total = cells.sum()
    cells = cells * ((1.0 - missing) / total) if total > 0 else np.array([1.0 - missing])
    before = missing + np.concatenate([[0.0], np.cumsum(cells)])
    before[-1] = 1.0

    def cell(bound: Floats) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        left = np.searchsorted(values, bound, "left")
        return left + np.searchsorted(values, bound, "right")

    a = np.where(np.isneginf(lo), 0.0, before[cell(lo)])
    b = np.where(np.isneginf(hi), missing, before[cell(hi) + 1])
    return a, b
