"""Capacitated minimum cut of the overlap graph: puts subscriptions that match the same events together.

Vertices are subscriptions, or small groups of them if there are too many. The weight of an edge is the
number of sampled events that match both ends. The assignment to servers should cut as little weight as
possible within the capacity. From an initial assignment, vertices move to the server that they share most
with, if it has room, or swap places (Kernighan and Lin), until nothing improves.

The cut is a proxy: it counts an event once per separated pair of vertices, traffic counts it once per server.
Therefore it is not the default.
"""

from __future__ import annotations

import numpy as np

from edn.arrays import Floats, Ints, Words
from edn.index.compilation import on_first_use

#: limit of vertices; the matrix of edges is dense
MOST_VERTICES = 1000
#: approximate number of groups if there are more subscriptions than that
GROUPS = 512
_SWEEPS = 40


def shared_events(bits: Words) -> Floats:
    """Return (n, n): the number of sampled events that match both ends."""
    out = np.zeros((len(bits), len(bits)))
    _shared(np.ascontiguousarray(bits), out)
    return out


def min_cut(weights: Floats, sizes: Ints, first: Ints, servers: int, capacity: int) -> Ints:
    """Return the server of each vertex, starting from `first`, which is within the capacity."""
    label = first.astype(np.int64).copy()
    loads = np.bincount(label, weights=sizes, minlength=servers).astype(np.int64)
    shares = np.zeros((len(label), servers))
    for server in range(servers):
        shares[:, server] = weights[:, label == server].sum(axis=1)
    for _ in range(_SWEEPS):
        if not _sweep(weights, sizes, label, loads, shares, capacity):
            break
    return label


@on_first_use
def _shared(bits: Words, out: Floats) -> None:
    n, words = bits.shape
    low, two = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
    four, ones = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
    for i in range(n):
        for k in range(i):
            total = 0
            for w in range(words):
                x = bits[i, w] & bits[k, w]
                x = x - ((x >> np.uint64(1)) & low)
                x = (x & two) + ((x >> np.uint64(2)) & two)
                x = (x + (x >> np.uint64(4))) & four
                total += int((x * ones) >> np.uint64(56))
            out[i, k] = out[k, i] = total


@on_first_use
def _move(weights: Floats, label: Ints, loads: Ints, shares: Floats, sizes: Ints, v: int, to: int) -> None:
    source = label[v]
    for u in range(label.shape[0]):
        shares[u, source] -= weights[u, v]
        shares[u, to] += weights[u, v]
    loads[source] -= sizes[v]
    loads[to] += sizes[v]
    label[v] = to


@on_first_use
def _sweep(weights: Floats, sizes: Ints, label: Ints, loads: Ints, shares: Floats, capacity: int) -> bool:
    """Try to improve each vertex; return whether any improved. Weights are integers, so each gain is >= 1."""
    helped = False
    for v in range(label.shape[0]):
        source = label[v]
        best, gain = -1, 0.5
        for to in range(loads.shape[0]):
            better = shares[v, to] - shares[v, source]
            if to != source and better > gain and loads[to] + sizes[v] <= capacity:
                best, gain = to, better
        partner = -1
        for u in range(label.shape[0]):
            to = label[u]
            if to == source:
                continue
            if loads[to] + sizes[v] - sizes[u] > capacity or loads[source] + sizes[u] - sizes[v] > capacity:
                continue
            better = shares[v, to] - shares[v, source] + shares[u, source] - shares[u, to]
            better -= 2.0 * weights[u, v]
            if better > gain:
                partner, gain = u, better
        if partner >= 0:
            to = label[partner]
            _move(weights, label, loads, shares, sizes, v, to)
            _move(weights, label, loads, shares, sizes, partner, source)
            helped = True
        elif best >= 0:
            _move(weights, label, loads, shares, sizes, v, best)
            helped = True
    return helped
