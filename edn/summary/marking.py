"""The compiled loops of the bitmap router: fill the bitsets of rectangles, and mark the points inside any."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edn.summary.kernels import Floats, Ints, Words, edges_at_or_below, kernel, trailing_zeros

Bools = npt.NDArray[np.bool_]

#: bins a dimension; a power of two, so that the search for a bin takes the same steps everywhere
BINS = 64
_CHUNK = 8
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
    """The place in a mask, 0 … 63, of a value given as the bits of its double."""
    # The upper bits of a product with an odd constant depend on all bits of the value.
    return int((np.uint64(bits) * _SPREAD) >> np.uint64(58))


@kernel
def _admits(bits: Words, p: int, masks: Words, at: int, d: int) -> bool:
    """Whether the masks that begin at `at` admit point p in every dimension."""
    admitted = True
    for j in range(d):
        if masks[at + j] >> np.uint64(bit_of(bits[p, j])) & _ONE == _NONE:
            admitted = False
    return admitted


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
    """Set out[p, column] where a cover contains point p; what is set already is not looked at.

    `shape` has a row a cover: column, dimensions, rectangles, how many of them to try one by one, words of a
    bitset, and where its edges, its table, its tallies, its bounds and its masks (-1: none) begin. One cover
    after the other, because a table fits into a cache and all of them do not. `bits` are the points as bits,
    for masks. `tallies` hold how many rectangles each bitset of the table has: the emptiest is asked first.
    """
    found = np.empty(_CHUNK, dtype=np.uint64)
    start = np.empty(max(1, points.shape[1]), dtype=np.int64)
    tally = np.empty(max(1, points.shape[1]), dtype=np.int64)
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
            for j in range(d):
                x = points[p, j]
                low = edges_at + j * (BINS - 1)
                base = low
                half = BINS // 2
                # 63 edges: six halvings without a branch.
                while half > 0:
                    if edges[low + half - 1] <= x:
                        low += half
                    half >>= 1
                row = j * BINS + low - base
                many = tallies[tallies_at + row]
                # Sorted as they come: with the emptiest first most chunks are done after a few.
                place = j
                while place > 0 and tally[place - 1] > many:
                    tally[place] = tally[place - 1]
                    start[place] = start[place - 1]
                    place -= 1
                tally[place] = many
                start[place] = table_at + row * words
            if tally[0] == 0:
                continue
            for chunk in range(0, words, _CHUNK):
                # Three at once: fewer leave something in most chunks, and a test costs more than an AND.
                at = start[0] + chunk
                second, third = start[min(1, d - 1)] + chunk, start[min(2, d - 1)] + chunk
                some = _NONE
                for w in range(_CHUNK):
                    found[w] = table[at + w] & table[second + w] & table[third + w]
                    some |= found[w]
                if some == _NONE:
                    continue
                for j in range(3, d):
                    at = start[j] + chunk
                    some = _NONE
                    for w in range(_CHUNK):
                        found[w] &= table[at + w]
                        some |= found[w]
                    if some == _NONE:
                        break
                if some == _NONE:
                    continue
                for w in range(_CHUNK):
                    word = found[w]
                    while word != _NONE:
                        i = ((chunk + w) * 64 + trailing_zeros(word)) * d
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


@kernel
def node_masks(children: Ints, lo: Floats, hi: Floats, bits: Words) -> Words:
    """For every node and dimension the values that its rectangles ask for by equality, one bit each.

    A rectangle that asks for a range admits all. Inner nodes come first, parents before children; `bits` are
    the lower bounds as bits.
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
    """The doubles as bits; both zeros as one, since they are equal."""
    return (values + 0.0).view(np.uint64)
