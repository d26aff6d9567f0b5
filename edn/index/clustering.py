"""Order rectangles so that those in one block lie close together.

The closer they lie, the fewer blocks reach into the bin of a point in every column, and blocks that do not
are never looked at: of 1,563 blocks of uniform rectangles in 8 columns 210 remain, in random order 1,480.

Divide the set again and again, at a multiple of the block, by the lower or the upper bound in one column.
Which bound, a sample decides: sorted by it and cut into eight runs, how much of the column's extent does a
run still have, on average? (Eight, as one cut alone may save nothing: think of names, half of them given.)
Extents are counted in bins, so that neither units nor outliers matter. The division is in halves, unless one
code has the majority, as "unconstrained" often does: then it is at that code's end, so that what is
constrained alike comes together. O(n log n), about 0.4 µs a rectangle for a million of them.
"""

from __future__ import annotations

import numpy as np

from edn.arrays import Ints
from edn.index.compilation import kernel
from edn.index.kernels import BLOCK, Codes, integer

_SAMPLE = 64
_RUNS = 8
#: a part is never smaller than this fraction of the whole, or the number of rounds would not be logarithmic
_LEAST_PART = 32


@kernel("i8(u1[:,::1], u1[:,::1], i8[::1], i8, i8, i8[::1])")
def best_bound(low: Codes, high: Codes, order: Ints, start: int, stop: int, histogram: Ints) -> int:
    """The bound to divide `order[start:stop]` by: column k, or k + columns for its upper one."""
    columns = low.shape[1]
    step = max(1, (stop - start) // _SAMPLE)
    best, chosen = 2.0, 0
    sizes = np.empty(_RUNS, np.int64)
    lowest, highest = np.empty(_RUNS, np.int64), np.empty(_RUNS, np.int64)
    for bound in range(2 * columns):
        column = bound % columns
        codes = low if bound < columns else high
        histogram[:] = 0
        count = 0
        for i in range(start, stop, step):
            histogram[codes[order[i], column]] += 1
            count += 1
        # from how many have a code to the run that it belongs to
        below = 0
        for code in range(256):
            here = histogram[code]
            histogram[code] = (below + here // 2) * _RUNS // count
            below += here
        sizes[:], lowest[:], highest[:] = 0, 256, -1
        for i in range(start, stop, step):
            row = order[i]
            run = histogram[codes[row, column]]
            sizes[run] += 1
            lowest[run] = min(lowest[run], integer(low[row, column]))
            highest[run] = max(highest[run], integer(high[row, column]))
        extent = 0
        for run in range(_RUNS):
            if sizes[run] > 0:
                extent += sizes[run] * (highest[run] - lowest[run] + 1)
        share = extent / (count * max(1, highest.max() - lowest.min() + 1))
        if share < best:
            best, chosen = share, bound
    return chosen


@kernel("i8(i8[::1], i8)")
def where_to_divide(histogram: Ints, size: int) -> int:
    """How many of a set go to the first part, a multiple of the block, given how many have each code."""
    half = min((size // 2 + BLOCK // 2) // BLOCK * BLOCK, (size - 1) // BLOCK * BLOCK)
    below, code = 0, 0
    while below + histogram[code] <= half:
        below += histogram[code]
        code += 1
    if 2 * histogram[code] > size:
        above = size - below - histogram[code]
        end = below if below > above else size - above
        end = (end + BLOCK // 2) // BLOCK * BLOCK
        if min(end, size - end) >= max(BLOCK, size // _LEAST_PART):
            return end
    return half


@kernel("i8[::1](u1[:,::1], u1[:,::1])")
def cluster(low: Codes, high: Codes) -> Ints:
    """The rows of coded rectangles in the order in which they should fill blocks."""
    count, columns = low.shape
    order = np.arange(count)
    if columns == 0:
        return order
    spare = np.empty(count, dtype=np.int64)
    histogram = np.zeros(257, dtype=np.int64)
    # the smaller part is divided first, so no more are open than a count has bits
    starts, stops = np.empty(130, dtype=np.int64), np.empty(130, dtype=np.int64)
    starts[0], stops[0] = 0, count
    open_ = 1
    while open_ > 0:
        open_ -= 1
        start, stop = starts[open_], stops[open_]
        size = stop - start
        if size <= BLOCK:
            continue
        bound = best_bound(low, high, order, start, stop, histogram)
        column = bound % columns
        codes = low if bound < columns else high
        histogram[:] = 0
        for i in range(start, stop):
            histogram[codes[order[i], column]] += 1
        first = where_to_divide(histogram, size)
        below, code = 0, 0
        while below + histogram[code] <= first:
            below += histogram[code]
            code += 1
        # so many of those with the code itself go to the first part, whichever come first
        ties = first - below
        left, right = start, start + first
        for i in range(start, stop):
            row = order[i]
            here = codes[row, column]
            if here < code or (here == code and ties > 0):
                if here == code:
                    ties -= 1
                spare[left] = row
                left += 1
            else:
                spare[right] = row
                right += 1
        order[start:stop] = spare[start:stop]
        middle = start + first
        if 2 * first > size:
            starts[open_], stops[open_], starts[open_ + 1], stops[open_ + 1] = start, middle, middle, stop
        else:
            starts[open_], stops[open_], starts[open_ + 1], stops[open_ + 1] = middle, stop, start, middle
        open_ += 2
    return order
