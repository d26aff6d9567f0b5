"""Kernels of `partitioning.selection`: find the bin of each row, and count the rows of each bin."""

from __future__ import annotations

import numpy as np

from edn.arrays import Floats, Ints, Words
from edn.index.compilation import on_first_use

#: how an interval is divided: evenly in the key, in its bits, or by row number among equal keys
BY_KEY, BY_BITS, BY_ROW = 0, 1, 2

LAST_ROW = int(np.iinfo(np.int64).max)


@on_first_use
def sortable(keys: Floats) -> Words:
    """Return unsigned integers in the order of the keys, which must not be NaN or negative zero."""
    flat = keys.ravel()
    out = np.empty(flat.shape[0], dtype=np.uint64)
    top = np.uint64(1) << np.uint64(63)
    bits = flat.view(np.uint64)
    for i in range(flat.shape[0]):
        out[i] = ~bits[i] if bits[i] & top else bits[i] | top
    return out.reshape(keys.shape)


@on_first_use
def find_bins(
    nodes: Ints,
    keys: Floats,
    rows: Ints,
    starts: Ints,
    mode: Ints,
    low: Floats,
    high: Floats,
    first: Ints,
    last: Ints,
    origin: Words,
    shift: Words,
    bins: int,
    slots: Ints,
) -> None:
    """Set slots[i, o] = interval × bins + bin of row i in ordering o, or -1 if no interval contains it."""
    n, orderings = keys.shape
    numbers = sortable(keys) if (mode == BY_BITS).any() else np.empty((0, 0), dtype=np.uint64)
    for i in range(n):
        for o in range(orderings):
            slots[i, o] = -1
        if nodes[i] < 0:
            continue
        for o in range(orderings):
            group = nodes[i] * orderings + o
            if group >= starts.shape[0] - 1:
                break
            key = keys[i, o]
            for at in range(starts[group], starts[group + 1]):
                if key < low[at] or (mode[at] == BY_ROW and key == low[at] and rows[i] < first[at]):
                    break
                if key > high[at] or (mode[at] == BY_ROW and rows[i] > last[at]):
                    continue
                if mode[at] == BY_KEY:
                    length = high[at] - low[at]
                    place = int((key - low[at]) / length * bins) if length > 0 else 0
                elif mode[at] == BY_BITS:
                    place = int((numbers[i, o] - origin[at]) >> shift[at])
                else:
                    place = int((np.uint64(rows[i]) - origin[at]) >> shift[at])
                slots[i, o] = at * bins + min(place, bins - 1)
                break


@on_first_use
def count_bins(
    slots: Ints,
    keys: Floats,
    rows: Ints,
    counts: Ints,
    least: Floats,
    greatest: Floats,
    lowest: Ints,
    highest: Ints,
) -> None:
    for i in range(slots.shape[0]):
        for o in range(slots.shape[1]):
            slot = slots[i, o]
            if slot >= 0:
                counts[slot] += 1
                least[slot] = min(least[slot], keys[i, o])
                greatest[slot] = max(greatest[slot], keys[i, o])
                lowest[slot] = min(lowest[slot], rows[i])
                highest[slot] = max(highest[slot], rows[i])
