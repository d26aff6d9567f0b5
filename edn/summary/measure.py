"""Measures rectangles without knowledge of the events, from the bounds of the rectangles themselves.

Coordinates have no common scale, and many sides are infinite or have no width, so plain volumes are useless.
Each dimension is therefore divided into cells at the distinct bounds v_1 < v_2 < … of the rectangles: one for
"missing", one per gap between two bounds, and one per bound. No rectangle divides a cell. A third of the
events are expected near bounds: a gap weighs as much as the bounds beside it, a single value as much as the
rectangles that test for equality with it. The others are expected anywhere: a gap weighs as much as it is
wide. Bounds alone would mislead, because maximal rectangles are large and have their bounds near the edge of
the space; widths alone ignore the scale. Concatenating the cells maps every rectangle into [0, 1]^d, where
its volume is its expected share of the events.
"""

from __future__ import annotations

import numpy as np

from edn.arrays import Floats

#: share of the events that lack an attribute, if some rectangle depends on it
MISSING_SHARE = 0.05
#: weight of a value without equality tests, relative to a bound there; and of a gap beside values with them
_FAINT = 0.02
#: share of the events that are expected anywhere, in a column with ranges only
EVEN_SHARE = 0.65

_LARGEST = np.finfo(np.float64).max


def unit_rects(lo: Floats, hi: Floats, even: float = EVEN_SHARE) -> tuple[Floats, Floats]:
    """Maps rectangles into [0, 1]^d; a point u lies in one if a <= u < b.

    `even` is the share of events that are expected anywhere: 0 measures by bounds alone, 1 by widths alone.
    """
    a = np.zeros_like(lo)
    b = np.ones_like(hi)
    # Unconstrained columns stay [0, 1]; a wide topic has many of them.
    for j in np.flatnonzero(((lo != -np.inf) | (hi != np.inf)).any(axis=0)).tolist():
        a[:, j], b[:, j] = _unit_column(lo[:, j], hi[:, j], even)
    return a, b


def _unit_column(lo: Floats, hi: Floats, even: float) -> tuple[Floats, Floats]:
    alone = lo == hi
    pooled = np.concatenate([lo[~alone], hi[~alone]])
    values, place = np.unique(np.concatenate([pooled, lo[alone]]), return_inverse=True)
    inside = np.abs(values) < _LARGEST
    borders = np.bincount(place[: len(pooled)], minlength=len(values)).astype(np.float64)
    named = np.bincount(place[len(pooled) :], minlength=len(values)).astype(np.float64)
    values, borders, named = values[inside], borders[inside], named[inside]

    missing = MISSING_SHARE if np.isfinite(lo).any() or np.isneginf(hi).any() else 0.0
    # Cells in order: gap, value, gap, …, value, gap; the edge of the space is half a bound away.
    cells = np.empty(2 * len(values) + 1)
    cells[1::2] = named + _FAINT * borders
    beside = 0.5 * borders + _FAINT * named
    cells[0::2] = np.concatenate([beside, [0.0]]) + np.concatenate([[0.0], beside])
    total = cells.sum()
    cells = cells * ((1.0 - missing) / total) if total > 0 else np.array([1.0 - missing])
    ranges = borders.sum()
    # Halves, because the difference of two doubles may overflow.
    width = np.diff(0.5 * values)
    span = width.sum()
    if ranges > 0 and span > 0:
        # Equality tests alone give no reason to expect other values.
        share = even * ranges / (ranges + named.sum())
        cells *= 1.0 - share
        cells[2:-1:2] += share * (1.0 - missing) * (width / span)
    before = missing + np.concatenate([[0.0], np.cumsum(cells)])
    before[-1] = 1.0

    def cell(bound: Floats) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        left = np.searchsorted(values, bound, "left")
        return left + np.searchsorted(values, bound, "right")

    a = np.where(np.isneginf(lo), 0.0, before[cell(lo)])
    b = np.where(np.isneginf(hi), missing, before[cell(hi) + 1])
    return a, b
