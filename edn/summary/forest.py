"""The kernels of `Maximal`: a forest of witnesses, and bitsets to find covering rectangles.

Every rectangle that is not maximal has a *witness*: another one that covers it. So witnesses form a forest
whose roots are the maximal rectangles. Each root has a *slot*, a bit in a table of bitsets: `table[2j, b]`
has the slots whose lower bound in dimension j lies in bin b or a lower one, `table[2j + 1, b]` those whose
upper bound lies in bin b or a higher one. The rectangles that cover r are among the AND of one row per side;
those that r covers, among the AND of one complement per side. The candidates are compared exactly.

Slots are sorted by decreasing size when the table is built and are searched from their end, so that witnesses
are small: the removal of a huge rectangle then affects few others.
"""

from __future__ import annotations

import numpy as np

from edn.arrays import Floats, Ints, Words
from edn.index.bits import trailing_zeros
from edn.summary.kernels import CHUNK, edges_at_or_below, kernel

#: values of `witness` without a row
ROOT = -1
LOOSE = -2
FREE = -3

_ONE = np.uint64(1)
_NONE = np.uint64(0)


@kernel
def _covers(lo: Floats, hi: Floats, outer: int, inner: int) -> bool:
    inside = True
    for j in range(lo.shape[1]):
        if lo[outer, j] > lo[inner, j] or hi[outer, j] < hi[inner, j]:
            inside = False
            break
    return inside


@kernel
def bins_of(row: int, lo: Floats, hi: Floats, edges: Floats, bins: Ints) -> None:
    for j in range(lo.shape[1]):
        bins[2 * j] = edges_at_or_below(edges[2 * j], lo[row, j])
        bins[2 * j + 1] = edges_at_or_below(edges[2 * j + 1], hi[row, j])


@kernel
def find_cover(
    row: int, lo: Floats, hi: Floats, table: Words, slot_row: Ints, bins: Ints, used: int, found: Words
) -> int:
    """Finds a root that covers the row, or -1. `used` is the number of slots ever used."""
    sides = table.shape[0]
    chunks = (used + 64 * CHUNK - 1) // (64 * CHUNK)
    for chunk in range(chunks - 1, -1, -1):
        base = chunk * CHUNK
        for w in range(CHUNK):
            found[w] = table[0, bins[0], base + w] & table[1, bins[1], base + w]
        for side in range(2, sides):
            b = bins[side]
            some = _NONE
            for w in range(CHUNK):
                found[w] &= table[side, b, base + w]
                some |= found[w]
            if some == _NONE:
                break
        for w in range(CHUNK - 1, -1, -1):
            word = found[w]
            while word != _NONE:
                slot = (base + w) * 64 + trailing_zeros(word)
                if _covers(lo, hi, slot_row[slot], row):
                    return int(slot_row[slot])
                word &= word - _ONE
    return -1


@kernel
def _attach(row: int, witness_row: int, witness: Ints, child: Ints, following: Ints, before: Ints) -> None:
    witness[row] = witness_row
    first = child[witness_row]
    following[row] = first
    before[row] = -1
    if first >= 0:
        before[first] = row
    child[witness_row] = row


@kernel
def _detach(row: int, witness: Ints, child: Ints, following: Ints, before: Ints) -> None:
    if before[row] >= 0:
        following[before[row]] = following[row]
    else:
        child[witness[row]] = following[row]
    if following[row] >= 0:
        before[following[row]] = before[row]


@kernel
def _take_slot(
    row: int, place: int, bins: Ints, table: Words, alive: Words, slot_row: Ints, slot: Ints
) -> None:
    w = place >> 6
    bit = _ONE << np.uint64(place & 63)
    alive[w] |= bit
    slot_row[place] = row
    slot[row] = place
    for side in range(0, table.shape[0], 2):
        for b in range(bins[side], table.shape[1]):
            table[side, b, w] |= bit
        for b in range(bins[side + 1] + 1):
            table[side + 1, b, w] |= bit


@kernel
def _free_slot(row: int, table: Words, alive: Words, slot_row: Ints, slot: Ints) -> None:
    place = slot[row]
    w = place >> 6
    keep = ~(_ONE << np.uint64(place & 63))
    alive[w] &= keep
    for side in range(table.shape[0]):
        for b in range(table.shape[1]):
            table[side, b, w] &= keep
    slot_row[place] = -1
    slot[row] = -1


@kernel
def _demote_covered(
    row: int,
    lo: Floats,
    hi: Floats,
    witness: Ints,
    child: Ints,
    following: Ints,
    before: Ints,
    slot: Ints,
    table: Words,
    alive: Words,
    slot_row: Ints,
    free_slots: Ints,
    counts: Ints,
    bins: Ints,
    found: Words,
) -> None:
    """Makes the row the witness of all roots that it covers; they lose their slots."""
    sides = table.shape[0]
    last = table.shape[1] - 1
    for chunk in range((counts[0] + 64 * CHUNK - 1) // (64 * CHUNK)):
        base = chunk * CHUNK
        for w in range(CHUNK):
            found[w] = alive[base + w]
        for side in range(sides):
            b = bins[side]
            # Lower bounds in this bin or a higher one are those in no lower bin; likewise for upper bounds.
            below = b - 1 if side & 1 == 0 else b + 1
            if below < 0 or below > last:
                continue
            some = _NONE
            for w in range(CHUNK):
                found[w] &= ~table[side, below, base + w]
                some |= found[w]
            if some == _NONE:
                break
        for w in range(CHUNK):
            word = found[w]
            while word != _NONE:
                place = (base + w) * 64 + trailing_zeros(word)
                other = slot_row[place]
                if _covers(lo, hi, row, other):
                    _free_slot(other, table, alive, slot_row, slot)
                    free_slots[counts[1]] = place
                    counts[1] += 1
                    counts[2] -= 1
                    _attach(other, row, witness, child, following, before)
                word &= word - _ONE


@kernel
def insert_rows(
    rows: Ints,
    begin: int,
    lo: Floats,
    hi: Floats,
    witness: Ints,
    child: Ints,
    following: Ints,
    before: Ints,
    slot: Ints,
    table: Words,
    edges: Floats,
    alive: Words,
    slot_row: Ints,
    free_slots: Ints,
    counts: Ints,
) -> int:
    """Inserts rows[begin:], each loose and without a slot; returns the index after the last inserted one.

    It stops when no slot is left. `counts` is [slots ever used, free ones of them, roots].
    """
    bins = np.zeros(table.shape[0], dtype=np.int64)
    found = np.empty(CHUNK, dtype=np.uint64)
    for i in range(begin, len(rows)):
        row = rows[i]
        bins_of(row, lo, hi, edges, bins)
        cover = find_cover(row, lo, hi, table, slot_row, bins, counts[0], found)
        if cover >= 0:
            _attach(row, cover, witness, child, following, before)
            continue
        _demote_covered(
            row, lo, hi, witness, child, following, before, slot,
            table, alive, slot_row, free_slots, counts, bins, found,
        )  # fmt: skip
        if counts[1] > 0:
            counts[1] -= 1
            place = free_slots[counts[1]]
        elif counts[0] < len(slot_row):
            place = counts[0]
            counts[0] += 1
        else:
            return i
        witness[row] = ROOT
        counts[2] += 1
        _take_slot(row, place, bins, table, alive, slot_row, slot)
    return len(rows)


@kernel
def remove_rows(
    rows: Ints,
    witness: Ints,
    child: Ints,
    following: Ints,
    before: Ints,
    slot: Ints,
    table: Words,
    alive: Words,
    slot_row: Ints,
    free_slots: Ints,
    counts: Ints,
    orphans: Ints,
) -> int:
    """Removes rows; returns the number of `orphans`, rows that lost their witness and are loose now.

    The children of a row get its witness, which covers them, too; only a root leaves orphans. An orphan that
    is removed later in the same call stays in the list, marked FREE.
    """
    lost = 0
    for i in range(len(rows)):
        row = rows[i]
        above = witness[row]
        if above >= 0:
            _detach(row, witness, child, following, before)
        elif above == ROOT:
            place = slot[row]
            _free_slot(row, table, alive, slot_row, slot)
            free_slots[counts[1]] = place
            counts[1] += 1
            counts[2] -= 1
        below = child[row]
        while below >= 0:
            coming = following[below]
            if above >= 0:
                _attach(below, above, witness, child, following, before)
            else:
                witness[below] = LOOSE
                orphans[lost] = below
                lost += 1
            below = coming
        child[row] = -1
        witness[row] = FREE
    return lost


@kernel
def fill_table(
    rows: Ints, lo: Floats, hi: Floats, edges: Floats, table: Words, slot_row: Ints, slot: Ints
) -> None:
    """Assigns the slots 0, 1, 2, … to rows: marks each in its bins, then accumulates along the bins."""
    sides = table.shape[0]
    count = table.shape[1]
    bins = np.zeros(sides, dtype=np.int64)
    for place in range(len(rows)):
        row = rows[place]
        slot_row[place] = row
        slot[row] = place
        bins_of(row, lo, hi, edges, bins)
        for side in range(sides):
            table[side, bins[side], place >> 6] |= _ONE << np.uint64(place & 63)
    for side in range(0, sides, 2):
        for b in range(1, count):
            for w in range(table.shape[2]):
                table[side, b, w] |= table[side, b - 1, w]
        for b in range(count - 2, -1, -1):
            for w in range(table.shape[2]):
                table[side + 1, b, w] |= table[side + 1, b + 1, w]
