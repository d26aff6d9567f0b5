"""Order rectangles so that those in one block lie close together.

The closer they lie, the fewer blocks reach into the bin of a point in every column, and blocks that do not
are never looked at: of 1,563 blocks of uniform rectangles in 8 columns 190 remain, in random order all.

Halve the set again and again, at a multiple of the block, by the lower or the upper bound in one column, and
choose that bound by what it saves: the extent that the two halves have in its column, weighted by their size,
as a share of the extent of the whole. Extents are counted in bins, so that neither units nor outliers matter.
A sample of 128 decides; the cost is O(n log n), about 0.25 µs a rectangle for a million of them.
"""

from __future__ import annotations

import numpy as np

from edn.index.compiling import kernel
from edn.index.kernels import BLOCK, Codes, Integers, integer

_SAMPLE = 128


@kernel("i8(u1[:,::1], u1[:,::1], i8[::1], i8, i8, i8[::1])")
def best_bound(low: Codes, high: Codes, order: Integers, start: int, stop: int, histogram: Integers) -> int:
    """The bound to split `order[start:stop]` by: column k, or k + columns for its upper one."""
    columns = low.shape[1]
    step = max(1, (stop - start) // _SAMPLE)
    best, chosen = 2.0, 0
    for bound in range(2 * columns):
        column = bound % columns
        codes = low if bound < columns else high
        histogram[:] = 0
        count = 0
        for i in range(start, stop, step):
            histogram[codes[order[i], column]] += 1
            count += 1
        below, code = 0, 0
        while below + histogram[code] <= count // 2:
            below += histogram[code]
            code += 1
        if below == 0:
            code += 1
        first_low, first_high, second_low, second_high = 256, -1, 256, -1
        first = 0
        for i in range(start, stop, step):
            row = order[i]
            a, b = integer(low[row, column]), integer(high[row, column])
            if codes[row, column] < code:
                first += 1
                first_low, first_high = min(first_low, a), max(first_high, b)
            else:
                second_low, second_high = min(second_low, a), max(second_high, b)
        second = count - first
        if second == 0:
            continue
        extent = max(first_high, second_high) - min(first_low, second_low) + 1
        halves = first * (first_high - first_low + 1) + second * (second_high - second_low + 1)
        share = halves / (count * max(1, extent))
        if share < best:
            best, chosen = share, bound
    return chosen


@kernel("i8[::1](u1[:,::1], u1[:,::1])")
def cluster(low: Codes, high: Codes) -> Integers:
    """The rows of coded rectangles in the order in which they should fill blocks."""
    count, columns = low.shape
    order = np.arange(count)
    if columns == 0:
        return order
    spare = np.empty(count, dtype=np.int64)
    histogram = np.zeros(257, dtype=np.int64)
    # halving never nests deeper than a count has bits
    starts, stops = np.empty(130, dtype=np.int64), np.empty(130, dtype=np.int64)
    starts[0], stops[0] = 0, count
    open_ = 1
    while open_ > 0:
        open_ -= 1
        start, stop = starts[open_], stops[open_]
        size = stop - start
        if size <= BLOCK:
            continue
        half = min((size // 2 + BLOCK // 2) // BLOCK * BLOCK, (size - 1) // BLOCK * BLOCK)
        bound = best_bound(low, high, order, start, stop, histogram)
        column = bound % columns
        codes = low if bound < columns else high
        histogram[:] = 0
        for i in range(start, stop):
            histogram[codes[order[i], column]] += 1
        below, code = 0, 0
        while below + histogram[code] <= half:
            below += histogram[code]
            code += 1
        # so many of those with the code itself go to the first half, whichever come first
        ties = half - below
        left, right = start, start + half
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
        starts[open_], stops[open_] = start, start + half
        starts[open_ + 1], stops[open_ + 1] = start + half, stop
        open_ += 2
    return order
