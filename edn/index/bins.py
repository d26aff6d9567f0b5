"""Choose where the values of a column are cut into bins.

A closed interval [lo, hi] of doubles is the half-open [lo, successor of hi), so it begins and ends at two
*breakpoints*. Edges are drawn from the breakpoints: all of them if they are few, which makes codes exact (a
column of states, currencies or flags), else quantiles, so that each bin is entered or left by equally many
rectangles, with a value that very many share taking one edge only.

The first edge is always the least finite double. So the first bin holds nothing but "missing" (-inf).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edn.arrays import Floats, Ints
from edn.index.kernels import EDGES_WIDTH, FAN

LEAST = -np.finfo(np.float64).max

#: with stride 1, codes of points are 1..254
_MOST_EDGES = 253
#: with stride 2, the places between bins have codes too
_MOST_EXACT_EDGES = 126
#: quantiles of so many rectangles are close enough
_SAMPLE = 8192


@dataclass(frozen=True, slots=True)
class Bins:
    """The edges of each column, as `edn.index.kernels.find_bin` reads them."""

    edges: Floats
    #: 2 where every edge has a code of its own, else 1
    strides: Ints

    @classmethod
    def of(cls, lo: Floats, hi: Floats) -> Bins:
        """Bins that suit these rectangles. Looks at 8,192 of them at most: a millisecond a column."""
        count, columns = lo.shape
        if count > _SAMPLE:
            rows = np.random.default_rng(count).integers(0, count, _SAMPLE)
            lo, hi = lo[rows], hi[rows]
        edges = np.full((columns, EDGES_WIDTH), np.nan)
        strides = np.ones(columns, dtype=np.int64)
        for column in range(columns):
            chosen, strides[column] = _choose(lo[:, column], hi[:, column])
            edges[column, FAN : FAN + len(chosen)] = chosen
            coarse = chosen[FAN - 1 :: FAN]
            edges[column, : len(coarse)] = coarse
        return cls(edges, strides)


def _choose(lo: Floats, hi: Floats) -> tuple[Floats, int]:
    with np.errstate(over="ignore", invalid="ignore"):
        breakpoints = np.concatenate((lo, np.nextafter(hi, np.inf), (LEAST,)))
    values, counts = np.unique(breakpoints[np.isfinite(breakpoints)], return_counts=True)
    if len(values) <= _MOST_EXACT_EDGES:
        return values, 2
    if len(values) > _MOST_EDGES:
        wanted = _MOST_EDGES - 1
        # a value that fills several bins alone would take several edges, all but one of them in vain
        weights = np.minimum(counts, max(1, counts.sum() // wanted)).cumsum()
        targets = np.arange(1, wanted + 1) * (weights[-1] / wanted)
        places = np.minimum(np.searchsorted(weights, targets), len(values) - 1)
        values = np.unique(np.append(values[places], LEAST))
    return values, 1
