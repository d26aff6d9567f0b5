"""Converts boxes into a limited number of closed rectangles.

Each side of a box becomes a list of *segments*, closed intervals of coordinates; the box is the product of
its sides. Too many rectangles are reduced by merging the segments with the smallest gaps; the result is no
longer exact.
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

#: maximal rectangles per filter
MAX_RECTS = 64


class Segment(NamedTuple):
    """A closed interval of coordinates."""

    lo: float
    hi: float
    #: whether every value with a coordinate inside belongs to the set
    exact: bool


#: column → segments in ascending order
Sides = dict[int, list[Segment]]


def rectangles(boxes: Sequence[Box], width: int) -> Rects:
    """Returns at most `MAX_RECTS` rectangles that contain as many boxes or fewer."""
    sides = _fitted(list(map(sides_of, boxes)))
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
    return _without_redundant(lo, hi, exact)


def sides_of(box: Box) -> Sides:
    """Converts the cells of a box; whether the box itself is exact is up to the caller."""
    return {column: segments_of(cell) for column, cell in box.cells.items()}


def segments_of(cell: Cell) -> list[Segment]:
    segments: list[Segment] = []
    for interval in cell.intervals:
        lo, hi, exact = cell.domain.closed(*interval)
        exact = exact and not cell.patterns
        if segments and lo <= segments[-1].hi:  # long strings with the same coordinate
            segments[-1] = Segment(segments[-1].lo, max(hi, segments[-1].hi), False)
        else:
            segments.append(Segment(lo, hi, exact))
    if cell.missing:
        if cell.intervals and cell.intervals[0][0] == cell.domain.least:  # no value lies in between
            segments[0] = segments[0]._replace(lo=MISSING)
        else:
            segments.insert(0, Segment(MISSING, MISSING, True))
    return segments


def _count(sides: Sides) -> int:
    return math.prod(map(len, sides.values()))


def _fitted(boxes: list[Sides]) -> list[Sides]:
    """Merges segments until the rectangles fit, the longest side of the largest box first."""
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


def _merged(segments: list[Segment], count: int) -> list[Segment]:
    """Merges segments into `count` ones, split at the widest gaps."""
    gaps = [after.lo - before.hi for before, after in itertools.pairwise(segments)]
    widest = sorted(range(len(gaps)), key=lambda gap: -gaps[gap])[: count - 1]
    merged: list[Segment] = []
    start = 0
    for stop in [*(gap + 1 for gap in sorted(widest)), len(segments)]:
        if stop - start == 1:
            merged.append(segments[start])
        else:
            merged.append(Segment(segments[start].lo, segments[stop - 1].hi, False))
        start = stop
    return merged


def _without_redundant(lo: Floats, hi: Floats, exact: Bools) -> Rects:
    """Drops rectangles inside another one that is at least as exact; keeps the first of equal ones."""
    count = len(exact)
    if count < 2:
        return Rects(lo, hi, exact)
    inside = np.logical_and.reduce((lo[:, None] >= lo[None]) & (hi[:, None] <= hi[None]), axis=2)
    redundant = inside & (exact[None] | ~exact[:, None])
    mutual = redundant & redundant.T & (np.arange(count)[:, None] <= np.arange(count)[None])
    keep = ~(redundant & ~mutual).any(axis=1)
    return Rects(lo[keep], hi[keep], exact[keep])
