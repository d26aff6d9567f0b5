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


@kernel
def fill(lo: Floats, hi: Floats, edges: Floats, table: Words) -> None:
    for i in range(lo.shape[0]):
        w = i >> 6
        bit = _ONE << np.uint64(i & 63)
        for j in range(lo.shape[1]):
            for b in range(edges_at_or_below(edges[j], lo[i, j]), edges_at_or_below(edges[j], hi[i, j]) + 1):
                table[j, b, w] |= bit


@kernel
def mark(
    points: Floats, shape: Ints, edges: Floats, table: Words, lo: Floats, hi: Floats, out: Bools
) -> None:
    """Set out[p, column] where a cover contains point p; what is set already is not looked at.

    `shape` has a row a cover: column, dimensions, rectangles, how many of them to try one by one, words of a
    bitset, and where its edges, its table and its bounds begin. One cover after the other, because a table
    fits into a cache and all of them do not.
    """
    found = np.empty(_CHUNK, dtype=np.uint64)
    start = np.empty(max(1, points.shape[1]), dtype=np.int64)
    for s in range(shape.shape[0]):
        column, d, n, first, words, edges_at, table_at, rects_at = shape[s]
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
                        i = rects_at + ((chunk + w) * 64 + trailing_zeros(word)) * d
                        hit = True
                        for j in range(d):
                            x = points[p, j]
                            if x < lo[i + j] or x > hi[i + j]:
                                hit = False
                                break
                        if hit:
                            break
                        word &= word - _ONE
                    if hit:
                        break
                if hit:
                    out[p, column] = True
                    break
