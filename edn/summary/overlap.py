"""Finds which advertisements overlap which filters, many at a time.

Both are products of columns, and a column is a union of *segments*: closed intervals of coordinates. Two
products overlap if their segments overlap in every column that both constrain. A filter may be several
products, its *boxes*. The answer for a pair is one of

    NONE     no event can belong to both
    MAYBE    the covers overlap; the exact sets may not
    SURELY   exact segments overlap in every column

`Footprints` holds the boxes of filters in flat arrays, of constrained columns only, so that wide topics cost
no more than narrow ones. `Fields` holds advertisements, one row of segments per column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edn.arrays import Bools, Floats, Ints
from edn.index.compilation import kernel

NONE, MAYBE, SURELY = 0, 1, 2

#: (lo, hi, exact) of a closed interval of coordinates
Interval = tuple[float, float, bool]
#: column → intervals in ascending order
Sides = Mapping[int, Sequence[Interval]]
Flags = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Segments:
    """Intervals in one array each."""

    lo: Floats
    hi: Floats
    exact: Bools

    @classmethod
    def of(cls, intervals: Sequence[Interval]) -> Segments:
        count = len(intervals)
        return cls(
            np.fromiter((one[0] for one in intervals), np.float64, count),
            np.fromiter((one[1] for one in intervals), np.float64, count),
            np.fromiter((one[2] for one in intervals), np.bool_, count),
        )

    @classmethod
    def joined(cls, parts: Sequence[Segments]) -> Segments:
        return cls(
            np.concatenate([part.lo for part in parts]),
            np.concatenate([part.hi for part in parts]),
            np.concatenate([part.exact for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class Footprints:
    """Filters in order: the boxes of filter i are [boxes[i], boxes[i + 1]), and so on downwards."""

    #: (n + 1): filter → box
    boxes: Ints
    #: (boxes + 1): box → side
    sides: Ints
    #: (sides): column of a side
    columns: Ints
    #: (sides + 1): side → segment
    segments: Ints
    values: Segments

    def __len__(self) -> int:
        return len(self.boxes) - 1

    @classmethod
    def of(cls, filters: Sequence[Sequence[Sides]]) -> Footprints:
        boxes, sides, columns, segments = [0], [0], [], [0]
        intervals: list[Interval] = []
        for filter in filters:
            for box in filter:
                for column, some in box.items():
                    columns.append(column)
                    intervals.extend(some)
                    segments.append(len(intervals))
                sides.append(len(columns))
            boxes.append(len(sides) - 1)
        return cls(_ints(boxes), _ints(sides), _ints(columns), _ints(segments), Segments.of(intervals))

    @classmethod
    def joined(cls, parts: Sequence[Footprints]) -> Footprints:
        if len(parts) == 1:
            return parts[0]
        return cls(
            _chained([part.boxes for part in parts]),
            _chained([part.sides for part in parts]),
            np.concatenate([part.columns for part in parts]),
            _chained([part.segments for part in parts]),
            Segments.joined([part.values for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class Fields:
    """Advertisements: the segments of row i and column c are [starts[i, c], starts[i, c + 1])."""

    #: (n, width + 1); a column without segments is unconstrained
    starts: Ints
    values: Segments

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of(cls, rows: Sequence[Sides], width: int) -> Fields:
        intervals: list[Interval] = []
        starts = np.zeros((len(rows), width + 1), dtype=np.int64)
        for row, sides in enumerate(rows):
            for column in range(width):
                starts[row, column] = len(intervals)
                intervals.extend(sides.get(column, ()))
            starts[row, width] = len(intervals)
        return cls(starts, Segments.of(intervals))


def relate(filters: Footprints, chosen: Ints, fields: Fields) -> tuple[Ints, Flags]:
    """Returns for each chosen filter an advertisement that overlaps it, and how: the first of the best.

    -1 and NONE if none does. It stops at the first that surely overlaps.
    """
    found = np.full(len(chosen), -1, dtype=np.int64)
    how = np.zeros(len(chosen), dtype=np.int8)
    mine, theirs = filters.values, fields.values
    _relate(
        _ints(chosen), filters.boxes, filters.sides, filters.columns, filters.segments, mine.lo, mine.hi,
        mine.exact, fields.starts, theirs.lo, theirs.hi, theirs.exact, found, how,
    )  # fmt: skip
    return found, how


def relate_one(filters: Footprints, place: int, fields: Fields) -> Flags:
    """Returns how one filter overlaps each advertisement."""
    how = np.zeros(len(fields), dtype=np.int8)
    single = _ints([place])
    for row in range(len(fields)):
        part = Fields(fields.starts[row : row + 1], fields.values)
        how[row] = relate(filters, single, part)[1][0]
    return how


def _ints(values: npt.ArrayLike) -> Ints:
    return np.ascontiguousarray(values, dtype=np.int64)


def _chained(parts: Sequence[Ints]) -> Ints:
    """Concatenates arrays of starts, each shifted behind the one before."""
    shifted, end = [np.zeros(1, dtype=np.int64)], 0
    for part in parts:
        shifted.append(part[1:] + end)
        end += int(part[-1])
    return np.concatenate(shifted)


@kernel(
    "void(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], float64[::1], float64[::1],"
    " boolean[::1], int64[:, ::1], float64[::1], float64[::1], boolean[::1], int64[::1], int8[::1])"
)
def _relate(
    chosen: Ints,
    boxes: Ints,
    sides: Ints,
    columns: Ints,
    segments: Ints,
    lo: Floats,
    hi: Floats,
    exact: Bools,
    starts: Ints,
    field_lo: Floats,
    field_hi: Floats,
    field_exact: Bools,
    found: Ints,
    how: Flags,
) -> None:
    width = starts.shape[1] - 1
    for number in range(chosen.shape[0]):
        filter = chosen[number]
        best = 0
        for row in range(starts.shape[0]):
            for box in range(boxes[filter], boxes[filter + 1]):
                status = 2
                for side in range(sides[box], sides[box + 1]):
                    column = columns[side]
                    # A column that the advertisement has not seen, or leaves free, constrains nothing.
                    if column >= width or starts[row, column] == starts[row, column + 1]:
                        sure = False
                        for one in range(segments[side], segments[side + 1]):
                            sure = sure or exact[one]
                        if not sure:
                            status = min(status, 1)
                        continue
                    meeting = 0
                    for one in range(segments[side], segments[side + 1]):
                        for other in range(starts[row, column], starts[row, column + 1]):
                            if lo[one] <= field_hi[other] and field_lo[other] <= hi[one]:
                                meeting = max(meeting, 2 if exact[one] and field_exact[other] else 1)
                        if meeting == 2:
                            break
                    status = min(status, meeting)
                    if status == 0:
                        break
                if status > best:
                    best = status
                    found[number] = row
                    how[number] = status
                if best == 2:
                    break
            if best == 2:
                break
