"""Shared parts of this package's kernels: compilation, binary search, bitsets.

Kernels release the interpreter lock, are cached on disk, and do not check their arguments; their callers do.
"""

from __future__ import annotations

import numpy as np

from edn.arrays import Floats
from edn.index.compilation import on_first_use, on_first_use_with_finite

kernel = on_first_use
finite_kernel = on_first_use_with_finite

#: words per step of a scan: 512 rectangles, enough for the widest registers
CHUNK = 8
WORD = 64


@kernel
def edges_at_or_below(edges: Floats, value: float) -> int:
    """Returns the bin of a value: the number of sorted edges at or below it."""
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
    """Returns the words of a bitset over `count` rectangles, in whole chunks."""
    return max(1, -(-count // (WORD * CHUNK))) * CHUNK


def quantile_edges(values: Floats, bins: int) -> Floats:
    """Returns `bins` - 1 sorted edges that divide the values evenly, padded with +inf.

    Edges are values, so frequent values get their own bins.
    """
    edges = np.full(bins - 1, np.inf)
    distinct, counts = np.unique(values, return_counts=True)
    # The lowest value needs no edge.
    if len(distinct) > bins:
        wanted = np.arange(1, bins) * (len(values) / bins)
        chosen = np.unique(np.searchsorted(np.cumsum(counts), wanted, side="right"))
        distinct = distinct[np.minimum(chosen, len(distinct) - 1)]
    else:
        distinct = distinct[1:]
    edges[: len(distinct)] = distinct
    return edges
