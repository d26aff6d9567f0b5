"""Chooses the edges of the bins of each column.

A closed interval [lo, hi] of doubles is the half-open [lo, successor of hi), with two *breakpoints*. The
edges are all breakpoints if they are few, which makes codes exact (a column of states, currencies or flags).
Otherwise they are quantiles, so that equally many rectangles begin or end in each bin; a frequent value gets
only one edge.

The first edge is always the least finite double, so the first bin contains only "missing" (-inf).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edn.arrays import Floats, Ints
from edn.index.kernels import EDGES_WIDTH, FAN

LEAST = -np.finfo(np.float64).max

#: maximal edges with stride 1: codes of points are 1..254
_MOST_EDGES = 253
#: maximal edges with stride 2: positions between bins have codes, too
_MOST_EXACT_EDGES = 126
#: rectangles sampled for quantiles
_SAMPLE = 8192


@dataclass(frozen=True, slots=True)
class Bins:
    """The edges of each column, in the layout of `edn.index.kernels.find_bin`."""

    edges: Floats
    #: 2 if every edge has its own code, else 1
    strides: Ints

    @classmethod
    def of(cls, lo: Floats, hi: Floats) -> Bins:
        """Chooses bins for these rectangles, from a sample of 8,192. Takes a millisecond per column."""
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
        # A value that fills several bins alone would waste all but one of its edges.
        weights = np.minimum(counts, max(1, counts.sum() // wanted)).cumsum()
        targets = np.arange(1, wanted + 1) * (weights[-1] / wanted)
        places = np.minimum(np.searchsorted(weights, targets), len(values) - 1)
        values = np.unique(np.append(values[places], LEAST))
    return values, 1
