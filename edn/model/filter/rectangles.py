"""Boxes turned into the closed rectangles of an index: few of them, and honest about what they add.

A side of a box, any set of values, becomes a list of *segments*, closed intervals of coordinates. A box is
then the product of its sides; where there would be too many rectangles, segments with small gaps between
them are merged, and the result is no longer exact.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edn.arrays import Bools, Floats
from edn.model.filter.boxes import Box
from edn.model.filter.cells import Cell
from edn.model.rect import MISSING, Rects

#: rectangles of one filter
MAX_RECTS = 64


class _Segment(NamedTuple):
    lo: float
    hi: float
    exact: bool


#: column → its segments, in ascending order
_Sides = dict[int, list[_Segment]]


def rectangles(boxes: Sequence[Box], width: int) -> Rects:
    """At most `MAX_RECTS` rectangles that contain the boxes; there must be no more boxes than that."""
    sides = [{column: _segments(cell) for column, cell in box.cells.items()} for box in boxes]
    sides = _fitted(sides)
    rows = sum(map(_count, sides))
    lo = np.full((rows, width), MISSING)
    hi = np.full((rows, width), math.inf)
    exact = np.zeros(rows, dtype=np.bool_)
    row = 0
    for box, columns in zip(boxes, sides, strict=True):
        for corner in itertools.product(*columns.values()):
            for column, segment in zip(columns, corner, strict=True):
                lo[row, column] = segment.lo
                hi[row, column] = segment.hi
            exact[row] = box.exact and all(segment.exact for segment in corner)
            row += 1
    return _without_idle(lo, hi, exact)


def _segments(cell: Cell) -> list[_Segment]:
    """The side of a box on its column's axis."""
    segments: list[_Segment] = []
    for interval in cell.intervals:
        lo, hi, exact = cell.domain.closed(*interval)
        exact = exact and not cell.patterns
        if segments and lo <= segments[-1].hi:  # long strings that only their tails tell apart
            segments[-1] = _Segment(segments[-1].lo, max(hi, segments[-1].hi), False)
        else:
            segments.append(_Segment(lo, hi, exact))
    if cell.missing:
        if cell.intervals and cell.intervals[0][0] == cell.domain.least:  # no value lies between the two
            segments[0] = segments[0]._replace(lo=MISSING)
        else:
            segments.insert(0, _Segment(MISSING, MISSING, True))
    return segments


def _count(sides: _Sides) -> int:
    return math.prod(map(len, sides.values()))


def _fitted(boxes: list[_Sides]) -> list[_Sides]:
    """Merge segments until the products have room, the longest side of the largest box first."""
    counts = list(map(_count, boxes))
    while (total := sum(counts)) > MAX_RECTS:
        index = counts.index(max(counts))
        sides = boxes[index]
        column = max(sides, key=lambda one: len(sides[one]))
        segments = len(sides[column])
        others = counts[index] // segments
        room = (MAX_RECTS - total + counts[index]) // others
        sides[column] = _merged(sides[column], max(room, segments // 2, 1))
        counts[index] = _count(sides)
    return boxes


def _merged(segments: list[_Segment], count: int) -> list[_Segment]:
    """So many segments, cut at the widest gaps."""
    gaps = [after.lo - before.hi for before, after in itertools.pairwise(segments)]
    widest = sorted(range(len(gaps)), key=lambda gap: -gaps[gap])[: count - 1]
    merged: list[_Segment] = []
    start = 0
    for stop in [*(gap + 1 for gap in sorted(widest)), len(segments)]:
        if stop - start == 1:
            merged.append(segments[start])
        else:
            merged.append(_Segment(segments[start].lo, segments[stop - 1].hi, False))
        start = stop
    return merged


def _without_idle(lo: Floats, hi: Floats, exact: Bools) -> Rects:
    """Without rectangles inside another one that says no less about what it contains; of equals the first
    stays."""
    count = len(exact)
    if count < 2:
        return Rects(lo, hi, exact)
    inside = np.logical_and.reduce((lo[:, None] >= lo[None]) & (hi[:, None] <= hi[None]), axis=2)
    idle = inside & (exact[None] | ~exact[:, None])
    mutual = idle & idle.T & (np.arange(count)[:, None] <= np.arange(count)[None])
    keep = ~(idle & ~mutual).any(axis=1)
    return Rects(lo[keep], hi[keep], exact[keep])
