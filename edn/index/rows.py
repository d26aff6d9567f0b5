"""Kernels that copy rectangles into slots, out of slots, and between columns."""

from __future__ import annotations

import numpy as np

from edn.arrays import Floats, Ints, Words
from edn.index.compilation import kernel
from edn.index.kernels import Codes, code_bounds, place
from edn.index.table import Slots, enter


@kernel("b1[::1](f8[:,::1], f8[:,::1])")
def constrained(lo: Floats, hi: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Tells in which columns any rectangle is constrained."""
    found = np.zeros(lo.shape[1], np.bool_)
    for row in range(lo.shape[0]):
        for k in range(lo.shape[1]):
            found[k] |= not (lo[row, k] == -np.inf and hi[row, k] == np.inf)
    return found


@kernel("f8[:,::1](f8[:,::1], i8[::1])")
def gather_columns(bounds: Floats, columns: Ints) -> Floats:
    result = np.empty((bounds.shape[0], columns.shape[0]))
    for row in range(bounds.shape[0]):
        for k in range(columns.shape[0]):
            result[row, k] = bounds[row, columns[k]]
    return result


@kernel("void(i8[::1], f8[:,::1], f8[:,::1], i8[::1], i8, i8[::1], f8[:,:,::1])")
def copy_rows(
    ids: Ints,
    lo: Floats,
    hi: Floats,
    order: Ints,
    start: int,
    to_ids: Ints,
    to_bounds: Floats,
) -> None:
    """Writes ids and bounds to slots start, start + 1, …, in the given order."""
    for i in range(order.shape[0]):
        row, slot = order[i], start + i
        to_ids[slot] = ids[row]
        for k in range(lo.shape[1]):
            to_bounds[slot, 0, k] = lo[row, k]
            to_bounds[slot, 1, k] = hi[row, k]


@kernel(
    "void(i8[::1], f8[:,::1], f8[:,::1], f8[:,::1], i8[::1], i8, i8[::1], f8[:,:,::1], u1[::1], u8[:,:,::1], "
    "i4[::1])"
)
def append_rows(
    ids: Ints,
    lo: Floats,
    hi: Floats,
    edges: Floats,
    strides: Ints,
    start: int,
    to_ids: Ints,
    to_bounds: Floats,
    blocks: Codes,
    reach: Words,
    table: Slots,
) -> None:
    """Codes rectangles and writes them to slots start, start + 1, …, except the bits that make them visible.

    One kernel, because rectangles are often inserted one by one and each call from Python costs a
    microsecond.
    """
    low, high = np.empty(lo.shape, np.uint8), np.empty(lo.shape, np.uint8)
    order = np.arange(ids.shape[0])
    code_bounds(lo, hi, edges, strides, low, high)
    copy_rows(ids, lo, hi, order, start, to_ids, to_bounds)
    place(start, low, high, order, blocks, reach)
    enter(table, to_ids, start, start + ids.shape[0])


@kernel("void(i8, i8, u8[::1], u8[::1])")
def raise_slots(start: int, stop: int, alive: Words, occupied: Words) -> None:
    """Makes slots visible to the next match."""
    for slot in range(start, stop):
        block = slot >> 6
        alive[block] |= np.uint64(1) << np.uint64(slot & 63)
        occupied[block >> 6] |= np.uint64(1) << np.uint64(block & 63)


@kernel("i8(u8[::1])")
def count_bits(words: Words) -> int:
    total = 0
    for i in range(words.shape[0]):
        word = words[i]
        while word != 0:
            total += 1
            word &= word - np.uint64(1)
    return total


@kernel("i8(i8[::1], f8[:,:,::1], i8[::1], u8[::1], i8, i8[::1], f8[:,::1], f8[:,::1])")
def gather_alive(
    ids: Ints,
    bounds: Floats,
    columns: Ints,
    alive: Words,
    at: int,
    to_ids: Ints,
    to_lo: Floats,
    to_hi: Floats,
) -> int:
    """Appends the rectangles whose bit is set, unconstrained in the columns that a segment lacks."""
    for slot in range(ids.shape[0]):
        if not (alive[slot >> 6] >> np.uint64(slot & 63)) & np.uint64(1):
            continue
        to_ids[at] = ids[slot]
        to_lo[at, :] = -np.inf
        to_hi[at, :] = np.inf
        for k in range(columns.shape[0]):
            to_lo[at, columns[k]] = bounds[slot, 0, k]
            to_hi[at, columns[k]] = bounds[slot, 1, k]
        at += 1
    return at
