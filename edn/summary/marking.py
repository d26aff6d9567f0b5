"""The kernels of the bitmap router: fill the bitsets of rectangles, and mark the points inside."""

from __future__ import annotations

import numpy as np

from edn.arrays import Bools, Floats, Ints, Words
from edn.index.bits import trailing_zeros
from edn.summary.kernels import edges_at_or_below, kernel

#: bins per dimension; a power of two, so that every search for a bin takes the same steps
BINS = 64
#: words of a bitset in the first step, with the largest rectangles, and in later steps
_AT_FIRST = 16
_AT_A_TIME = 160
_ONE = np.uint64(1)
_NONE = np.uint64(0)
_ALL = ~np.uint64(0)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@kernel
def fill(lo: Floats, hi: Floats, edges: Floats, table: Words) -> None:
    for i in range(lo.shape[0]):
        w = i >> 6
        bit = _ONE << np.uint64(i & 63)
        for j in range(lo.shape[1]):
            for b in range(edges_at_or_below(edges[j], lo[i, j]), edges_at_or_below(edges[j], hi[i, j]) + 1):
                table[j, b, w] |= bit


@kernel
def bit_of(bits: int) -> int:
    """Returns the position in a mask, 0 … 63, of a value given as the bits of its double."""
    # The upper bits of a product with an odd constant depend on all bits of the value.
    return int((np.uint64(bits) * _SPREAD) >> np.uint64(58))


@kernel
def _admits(bits: Words, p: int, masks: Words, at: int, d: int) -> bool:
    """Tells whether the masks from `at` on admit point p in every dimension."""
    admitted = True
    for j in range(d):
        if masks[at + j] >> np.uint64(bit_of(bits[p, j])) & _ONE == _NONE:
            admitted = False
    return admitted


@kernel
def _common(table: Words, start: Ints, d: int, skip: int, n: int, found: Words) -> bool:
    """Computes the AND of d bitsets, in n words after the first `skip`; returns whether any bit is set.

    Slices of equal length without branches are vectorized. Four bitsets per step, with a test in between,
    because a test costs as much as several ANDs.
    """
    common = found[:n]
    some = _NONE
    done = 0
    while done < d:
        a = table[start[done] + skip : start[done] + skip + n]
        if done + 4 <= d:
            b = table[start[done + 1] + skip : start[done + 1] + skip + n]
            c = table[start[done + 2] + skip : start[done + 2] + skip + n]
            e = table[start[done + 3] + skip : start[done + 3] + skip + n]
            if done:
                for w in range(n):
                    common[w] &= a[w] & b[w] & c[w] & e[w]
            else:
                for w in range(n):
                    common[w] = a[w] & b[w] & c[w] & e[w]
            done += 4
        else:
            if done:
                for w in range(n):
                    common[w] &= a[w]
            else:
                for w in range(n):
                    common[w] = a[w]
            done += 1
        some = _NONE
        for w in range(n):
            some |= common[w]
        if some == _NONE:
            break
    return bool(some != _NONE)


@kernel
def mark(
    points: Floats,
    bits: Words,
    shape: Ints,
    edges: Floats,
    table: Words,
    tallies: Ints,
    lo: Floats,
    hi: Floats,
    masks: Words,
    out: Bools,
) -> None:
    """Sets out[p, column] where a cover contains point p; skips values that are set already.

    `shape` has one row per cover: column, dimensions, rectangles, number of them to try one by one, words of
    a bitset, and the starts of its edges, table, tallies, bounds and masks (-1: none). Covers are processed
    one after the other, because one table fits into a cache and all of them do not. `bits` are the points as
    bits, for masks. `tallies` are the rectangles per bitset of the table: an empty bitset ends the search.
    """
    found = np.empty(_AT_A_TIME, dtype=np.uint64)
    start = np.empty(max(1, points.shape[1]), dtype=np.int64)
    for s in range(shape.shape[0]):
        column, d, n, first, words, edges_at, table_at, tallies_at, rects_at, masks_at = shape[s]
        for p in range(points.shape[0]):
            if out[p, column]:
                continue
            hit = False
            for i in range(first):
                hit = True
                for j in range(d):
                    x = points[p, j]
                    if x < lo[rects_at + i * d + j] or x > hi[rects_at + i * d + j]:
                        hit = False
                        break
                if hit and masks_at >= 0:
                    hit = _admits(bits, p, masks, masks_at + i * d, d)
                if hit:
                    break
            if hit or first == n:
                out[p, column] = hit
                continue
            fewest = n
            for j in range(d):
                x = points[p, j]
                # Counting all edges takes a few vector comparisons; a binary search takes six dependent ones.
                row = j * BINS
                own = edges[edges_at + j * (BINS - 1) : edges_at + (j + 1) * (BINS - 1)]
                for k in range(BINS - 1):
                    row += own[k] <= x
                fewest = min(fewest, tallies[tallies_at + row])
                start[j] = table_at + row * words
            if fewest == 0:
                continue
            skip = 0
            size = min(words, _AT_FIRST)
            while skip < words:
                # Not a function: the call would cost more than most candidates.
                if _common(table, start, d, skip, size, found):
                    for w in range(size):
                        word = found[w]
                        while word != _NONE:
                            i = ((skip + w) * 64 + trailing_zeros(word)) * d
                            hit = True
                            for j in range(d):
                                x = points[p, j]
                                if x < lo[rects_at + i + j] or x > hi[rects_at + i + j]:
                                    hit = False
                                    break
                            if hit and masks_at >= 0:
                                hit = _admits(bits, p, masks, masks_at + i, d)
                            if hit:
                                break
                            word &= word - _ONE
                        if hit:
                            break
                if hit:
                    out[p, column] = True
                    break
                skip += size
                size = min(words - skip, _AT_A_TIME)


@kernel
def node_masks(children: Ints, lo: Floats, hi: Floats, bits: Words) -> Words:
    """Computes, per node and dimension, the values that its rectangles test for equality, one bit each.

    A rectangle with a range admits all. Inner nodes come first, parents before children; `bits` are the lower
    bounds as bits.
    """
    inner = len(children)
    masks = np.empty(lo.shape, dtype=np.uint64)
    for node in range(inner, lo.shape[0]):
        for j in range(lo.shape[1]):
            masks[node, j] = _ONE << np.uint64(bit_of(bits[node, j])) if lo[node, j] == hi[node, j] else _ALL
    for node in range(inner - 1, -1, -1):
        for j in range(lo.shape[1]):
            masks[node, j] = masks[children[node, 0], j] | masks[children[node, 1], j]
    return masks


def as_bits(values: Floats) -> Words:
    """Returns the bits of doubles, the same for both zeros."""
    return (values + 0.0).view(np.uint64)
