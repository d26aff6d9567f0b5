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
    lo: Floats,
    hi: Floats,
    masks: Words,
    out: Bools,
) -> None:
    """Set out[p, column] where a cover contains point p; what is set already is not looked at.

    `shape` has a row a cover: column, dimensions, rectangles, how many of them to try one by one, words of a
    bitset, and where its edges, its table, its bounds and its masks (-1: none) begin. One cover after the
    other, because a table fits into a cache and all of them do not. `bits` are the points as bits, for masks.
    """
    found = np.empty(_CHUNK, dtype=np.uint64)
    start = np.empty(max(1, points.shape[1]), dtype=np.int64)
    for s in range(shape.shape[0]):
        column, d, n, first, words, edges_at, table_at, rects_at, masks_at = shape[s]
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
                start[j] = table_at + (j * BINS + low - base) * words
            for chunk in range(0, words, _CHUNK):
                some = _NONE
                at = start[0] + chunk
                for w in range(_CHUNK):
                    found[w] = table[at + w]
                for j in range(1, d):
                    at = start[j] + chunk
                    some = _NONE
                    for w in range(_CHUNK):
                        found[w] &= table[at + w]
                        some |= found[w]
                    if some == _NONE:
                        break
                if some == _NONE and d > 1:
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
