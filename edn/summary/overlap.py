"""Finds which advertisements overlap which filters, many at a time.

Both are products of columns, and a column is a union of *segments*: closed intervals of coordinates. Two
products overlap if their segments overlap in every column that both constrain. A filter may be several
products, its *boxes*. The answer for a pair is one of

    NONE     no event can belong to both
    MAYBE    the covers overlap; the exact sets may not
    SURELY   exact segments overlap in every column

`Footprints` holds the boxes of filters in flat arrays, of constrained columns only, so that wide topics cost
no more than narrow ones. `Fields` holds advertisements, one row of segments per column.

Most pairs have nothing in common. So each column is cut into *buckets*, and every bucket has a set of the
advertisements that have a segment there, one bit each. Segments that overlap share a bucket: intersecting the
sets of a filter's sides leaves few advertisements to compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
#: sets of advertisements, one bit each
Sets = npt.NDArray[np.uint64]

#: buckets per column, and 64-bit words of all their sets
BUCKETS, MOST_WORDS = 128, 1 << 21


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
    def of(cls, filters: Iterable[Sequence[Sides]]) -> Footprints:
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
        mine.exact, fields.starts, theirs.lo, theirs.hi, theirs.exact, *_buckets(fields), found, how,
    )  # fmt: skip
    return found, how


def relate_one(filters: Footprints, place: int, fields: Fields) -> Flags:
    """Returns how one filter overlaps each advertisement."""
    how = np.zeros(len(fields), dtype=np.int8)
    mine, theirs = filters.values, fields.values
    for row in range(len(fields)):
        how[row] = _compare(
            place, row, filters.boxes, filters.sides, filters.columns, filters.segments, mine.lo, mine.hi,
            mine.exact, fields.starts, theirs.lo, theirs.hi, theirs.exact,
        )  # fmt: skip
    return how


def contain(fields: Fields, rows: Ints, points: Floats, places: Ints, but: int) -> Bools:
    """Returns for pairs of an advertisement and a point whether the point lies in every column but one."""
    inside = np.ones(len(rows), dtype=np.bool_)
    _contain(fields.starts, fields.values.lo, fields.values.hi, rows, points, places, but, inside)
    return inside


def _buckets(fields: Fields) -> tuple[Floats, Sets]:
    """Returns the edges of each column's buckets, and which advertisements have segments in which bucket."""
    rows, width = len(fields), fields.starts.shape[1] - 1
    words = (rows + 63) // 64
    count = min(BUCKETS, max(1, MOST_WORDS // max(1, words * width)))
    edges = np.full((width, count - 1), np.inf)
    if rows and count > 1:
        for column in range(width):
            first, counts = fields.starts[:, column], np.diff(fields.starts[:, column : column + 2])[:, 0]
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            places = np.repeat(first, counts) + within
            bounds = np.unique(np.concatenate([fields.values.lo[places], fields.values.hi[places]]))
            if len(bounds):
                edges[column] = bounds[np.arange(1, count) * len(bounds) // count]
    sets = np.zeros((width, count, words), dtype=np.uint64)
    _fill(fields.starts, fields.values.lo, fields.values.hi, edges, sets)
    return edges, sets


def _ints(values: npt.ArrayLike) -> Ints:
    return np.ascontiguousarray(values, dtype=np.int64)


def _chained(parts: Sequence[Ints]) -> Ints:
    """Concatenates arrays of starts, each shifted behind the one before."""
    shifted, end = [np.zeros(1, dtype=np.int64)], 0
    for part in parts:
        shifted.append(part[1:] + end)
        end += int(part[-1])
    return np.concatenate(shifted)


@kernel("int64(float64[::1], float64)")
def _bucket(edges: Floats, value: float) -> int:
    """Returns the number of edges that are not above a value."""
    low, high = 0, edges.shape[0]
    while low < high:
        middle = (low + high) // 2
        if edges[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@kernel("void(int64[:,::1], float64[::1], float64[::1], float64[:,::1], uint64[:,:,::1])")
def _fill(starts: Ints, lo: Floats, hi: Floats, edges: Floats, sets: Sets) -> None:
    for row in range(starts.shape[0]):
        word, bit = row // 64, np.uint64(1) << np.uint64(row % 64)
        for column in range(sets.shape[0]):
            if starts[row, column] == starts[row, column + 1]:  # it leaves the column free
                for bucket in range(sets.shape[1]):
                    sets[column, bucket, word] |= bit
            for one in range(starts[row, column], starts[row, column + 1]):
                for bucket in range(_bucket(edges[column], lo[one]), _bucket(edges[column], hi[one]) + 1):
                    sets[column, bucket, word] |= bit


@kernel(
    "int64(int64, int64, int64[::1], int64[::1], int64[::1], int64[::1], float64[::1], float64[::1], "
    "boolean[::1], int64[:,::1], float64[::1], float64[::1], boolean[::1])"
)
def _compare(
    filter: int,
    row: int,
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
) -> int:
    """Returns how a filter overlaps an advertisement."""
    width = starts.shape[1] - 1
    best = 0
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
        best = max(best, status)
        if best == 2:
            break
    return best


@kernel(
    "void(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], float64[::1], float64[::1], "
    "boolean[::1], int64[:,::1], float64[::1], float64[::1], boolean[::1], float64[:,::1], "
    "uint64[:,:,::1], int64[::1], int8[::1])"
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
    edges: Floats,
    sets: Sets,
    found: Ints,
    how: Flags,
) -> None:
    width, words = starts.shape[1] - 1, sets.shape[2]
    # Advertisements in a bucket of the side, of all sides, of some box.
    beside, inside, candidates = (
        np.empty(words, dtype=np.uint64),
        np.empty(words, dtype=np.uint64),
        np.empty(words, dtype=np.uint64),
    )
    for number in range(chosen.shape[0]):
        filter = chosen[number]
        candidates[:] = 0
        for box in range(boxes[filter], boxes[filter + 1]):
            inside[:] = ~np.uint64(0)
            for side in range(sides[box], sides[box + 1]):
                column = columns[side]
                if column >= width:
                    continue
                beside[:] = 0
                for one in range(segments[side], segments[side + 1]):
                    first, last = _bucket(edges[column], lo[one]), _bucket(edges[column], hi[one])
                    for bucket in range(first, last + 1):
                        for word in range(words):
                            beside[word] |= sets[column, bucket, word]
                for word in range(words):
                    inside[word] &= beside[word]
            for word in range(words):
                candidates[word] |= inside[word]
        best = 0
        for word in range(words):
            row, left = 64 * word, candidates[word]
            while left and row < starts.shape[0] and best < 2:
                if left & np.uint64(1):
                    status = _compare(
                        filter, row, boxes, sides, columns, segments, lo, hi, exact, starts, field_lo,
                        field_hi, field_exact,
                    )  # fmt: skip
                    if status > best:
                        best = status
                        found[number] = row
                        how[number] = status
                left >>= np.uint64(1)
                row += 1


@kernel(
    "void(int64[:,::1], float64[::1], float64[::1], int64[::1], float64[:,::1], int64[::1], int64, "
    "boolean[::1])"
)
def _contain(
    starts: Ints, lo: Floats, hi: Floats, rows: Ints, points: Floats, places: Ints, but: int, inside: Bools
) -> None:
    for number in range(rows.shape[0]):
        row, place = rows[number], places[number]
        for column in range(starts.shape[1] - 1):
            first, last = starts[row, column], starts[row, column + 1]
            if column == but or first == last:
                continue
            value, hit = points[place, column], False
            for one in range(first, last):
                hit = hit or lo[one] <= value <= hi[one]
            if not hit:
                inside[number] = False
                break
