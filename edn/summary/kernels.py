"""Shared by the compiled loops of this package: compilation, binary search, words and bits.

Kernels release the interpreter's lock, are cached on disk, and take plain arrays; none of them checks its
arguments. Their callers do.
"""

from __future__ import annotations

import numpy as np

from edn.arrays import Floats
from edn.index.compilation import on_first_use, on_first_use_with_finite

kernel = on_first_use
finite_kernel = on_first_use_with_finite

#: words that a scan takes at a time: 512 rectangles, enough for the widest registers
CHUNK = 8
WORD = 64


@kernel
def edges_at_or_below(edges: Floats, value: float) -> int:
    """The bin of a value: how many of the sorted edges are not above it."""
    low = 0
    high = edges.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if edges[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


def words_for(count: int) -> int:
    """Words of a bitset over `count` rectangles, whole chunks only."""
    return max(1, -(-count // (WORD * CHUNK))) * CHUNK


def quantile_edges(values: Floats, bins: int) -> Floats:
    """Up to `bins` - 1 sorted edges that share the values evenly; short ones are padded with +inf.

    An edge is one of the values, so that values which many rectangles share get bins of their own.
    """
    edges = np.full(bins - 1, np.inf)
    distinct, counts = np.unique(values, return_counts=True)
    # The lowest value needs no edge below it.
    if len(distinct) > bins:
        wanted = np.arange(1, bins) * (len(values) / bins)
        chosen = np.unique(np.searchsorted(np.cumsum(counts), wanted, side="right"))
        distinct = distinct[np.minimum(chosen, len(distinct) - 1)]
    else:
        distinct = distinct[1:]
    edges[: len(distinct)] = distinct
    return edges
