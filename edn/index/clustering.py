"""Orders rectangles so that close ones share a block.

The closer the rectangles of a block, the fewer blocks reach into the bin of a point in every column; other
blocks are skipped. Of 1,563 blocks of uniform rectangles in 8 columns 210 remain, in random order 1,480.

The set is divided recursively, at a multiple of the block size, by the lower or upper bound in one column. A
sample chooses the bound: the rectangles are sorted by it and cut into eight runs; the best bound has the
smallest average extent per run, relative to the column's extent. (Eight, because one cut alone may gain
nothing.) Extents are counted in bins, so units and outliers do not matter. The division is in halves, unless
one code has the majority, as "unconstrained" often does: then it is at that code's end, so that rectangles
with the same constrained columns stay together. O(n log n), about 0.4 µs per rectangle for a million of them.
"""

from __future__ import annotations

import numpy as np

from edn.arrays import Ints
from edn.index.compilation import kernel
from edn.index.kernels import BLOCK, Codes, integer

_SAMPLE = 64
_RUNS = 8
#: minimal fraction of a part, so that the number of rounds is logarithmic
_LEAST_PART = 32


@kernel("i8(u1[:,::1], u1[:,::1], i8[::1], i8, i8, i8[::1])")
def best_bound(low: Codes, high: Codes, order: Ints, start: int, stop: int, histogram: Ints) -> int:
    """Chooses the bound to divide `order[start:stop]` by: column k, or k + columns for its upper bound."""
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
        # From the number of rectangles per code to the run of the code.
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
    """Returns the size of the first part, a multiple of the block; `histogram` counts rectangles per code."""
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
    """Returns the rows of coded rectangles in the order of the blocks."""
    count, columns = low.shape
    order = np.arange(count)
    if columns == 0:
        return order
    spare = np.empty(count, dtype=np.int64)
    histogram = np.zeros(257, dtype=np.int64)
    # The smaller part is divided first, so the number of open parts is at most the bits of a count.
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
        # Number of rectangles with exactly this code that go to the first part.
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
