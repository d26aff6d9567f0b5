"""Kernels that build a summary's hierarchy: a binary tree over rectangles in the unit cube.

In the unit cube volume is the expected share of events (see `edn.summary.measure`). The set is split from the
top into buckets of some thousand rectangles; in a bucket pairs are merged from the bottom, first the pair
that adds least to its larger rectangle. Splitting alone pairs badly at the bottom, where precise summaries
are cut; merging alone is quadratic and combines distant rectangles at the top.

Nodes are numbered leaves first: 0 … n - 1 are the rectangles, n … 2n - 2 the inner nodes, each after its
children, the root last.
"""

from __future__ import annotations

import numpy as np

from edn.arrays import Floats, Ints, Singles
from edn.summary.kernels import finite_kernel, kernel

_BINS = 16
#: sampled rows for the choice of a split
_LOOK = 1024
#: differences in the unit cube that count as zero
_CLOSE = 1e-300


@kernel
def volume(a: Floats, b: Floats) -> float:
    product = 1.0
    for j in range(len(a)):
        product *= b[j] - a[j]
    return product


@kernel
def _choose_split(a: Floats, b: Floats, rows: Ints) -> tuple[int, float]:
    """Chooses key (3j lower bound, 3j + 1 upper bound, 3j + 2 twice the centre) and border of the best split.

    The best split has the least sum of (rectangles × volume of their bounding rectangle) over the two sides.
    The key is -1 if all rectangles are alike.
    """
    d = a.shape[1]
    step = max(1, len(rows) // _LOOK)
    best_cost = np.inf
    best_key = -1
    best_border = 0.0
    low = np.empty((_BINS, d))
    high = np.empty((_BINS, d))
    count = np.empty(_BINS, dtype=np.int64)
    right_cost = np.empty(_BINS)
    run_low = np.empty(d)
    run_high = np.empty(d)
    for key in range(3 * d):
        j, kind = key // 3, key % 3
        least, most = np.inf, -np.inf
        for i in range(0, len(rows), step):
            r = rows[i]
            x = a[r, j] if kind == 0 else (b[r, j] if kind == 1 else a[r, j] + b[r, j])
            least = min(least, x)
            most = max(most, x)
        # Such close values would have infinite bin numbers.
        if most - least < _CLOSE:
            continue
        scale = _BINS / (most - least)
        count[:] = 0
        low[:] = np.inf
        high[:] = -np.inf
        for i in range(0, len(rows), step):
            r = rows[i]
            x = a[r, j] if kind == 0 else (b[r, j] if kind == 1 else a[r, j] + b[r, j])
            at = min(_BINS - 1, int((x - least) * scale))
            count[at] += 1
            for k in range(d):
                low[at, k] = min(low[at, k], a[r, k])
                high[at, k] = max(high[at, k], b[r, k])
        run_low[:] = np.inf
        run_high[:] = -np.inf
        seen = 0
        for at in range(_BINS - 1, 0, -1):
            if count[at] > 0:
                seen += count[at]
                for k in range(d):
                    run_low[k] = min(run_low[k], low[at, k])
                    run_high[k] = max(run_high[k], high[at, k])
            right_cost[at] = seen * volume(run_low, run_high) if seen > 0 else np.inf
        run_low[:] = np.inf
        run_high[:] = -np.inf
        seen = 0
        for at in range(_BINS - 1):
            if count[at] == 0:
                continue
            seen += count[at]
            for k in range(d):
                run_low[k] = min(run_low[k], low[at, k])
                run_high[k] = max(run_high[k], high[at, k])
            cost = seen * volume(run_low, run_high) + right_cost[at + 1]
            if cost < best_cost:
                best_cost = cost
                best_key = key
                best_border = least + (at + 1) / scale
    return best_key, best_border


@kernel
def _part(a: Floats, b: Floats, rows: Ints, begin: int, end: int, scratch: Ints) -> int:
    """Reorders rows[begin:end] into two non-empty sides; returns the start of the second."""
    middle = begin
    key, border = _choose_split(a, b, rows[begin:end])
    if key >= 0:
        j, kind = key // 3, key % 3
        tail = 0
        for i in range(begin, end):
            r = rows[i]
            x = a[r, j] if kind == 0 else (b[r, j] if kind == 1 else a[r, j] + b[r, j])
            if x < border:
                rows[middle] = r
                middle += 1
            else:
                scratch[tail] = r
                tail += 1
        for i in range(tail):
            rows[middle + i] = scratch[i]
    if middle in (begin, end):
        middle = (begin + end) // 2
    return middle


@finite_kernel
def _merging_costs(low: Singles, high: Singles, size: Singles, i: int, costs: Singles) -> None:
    """Computes the volume that merging cluster i with each other one adds to the larger of the two.

    The innermost loop: slices of known length, single precision and no branches let the compiler process
    eight or sixteen clusters at a time. `low` and `high` have one row per dimension.
    """
    m = len(costs)
    first_low, first_high = low[0, :m], high[0, :m]
    a, b = low[0, i], high[0, i]
    for j in range(m):
        costs[j] = max(b, first_high[j]) - min(a, first_low[j])
    for k in range(1, low.shape[0]):
        row_low, row_high = low[k, :m], high[k, :m]
        a, b = low[k, i], high[k, i]
        for j in range(m):
            costs[j] *= max(b, row_high[j]) - min(a, row_low[j])
    mine = size[i]
    sizes = size[:m]
    for j in range(m):
        costs[j] -= max(mine, sizes[j])


@kernel
def _before(a: int, b: int, c: int, d: int) -> bool:
    """Tells whether the pair {a, b} comes before {c, d}: the order of pairs of equal cost."""
    low, other = min(a, b), min(c, d)
    return low < other or (low == other and max(a, b) < max(c, d))


@kernel
def _merge_bucket(a: Floats, b: Floats, rows: Ints, children: Ints, base: int) -> None:
    """Merges the rectangles `rows` into one tree: inner nodes `base` … of `children`, the last is its root.

    In rounds: every cluster has a cheapest partner, and mutual partners are merged. Only new clusters and
    those that lost their partner search again. Pairs of equal cost are ordered, so that one pair is the first
    of all and each round merges at least that.
    """
    n, d = a.shape
    count = len(rows)
    low = np.empty((d, count), dtype=np.float32)
    high = np.empty((d, count), dtype=np.float32)
    size = np.ones(count, dtype=np.float32)
    for i in range(count):
        for k in range(d):
            low[k, i] = a[rows[i], k]
            high[k, i] = b[rows[i], k]
            size[i] *= high[k, i] - low[k, i]
    # Clusters are numbered like nodes, here 0 … 2 count - 2; `place` is the current position, -1 after a
    # merge.
    name = np.arange(count)
    place = np.full(2 * count - 1, -1, dtype=np.int64)
    place[:count] = np.arange(count)
    partner = np.full(count, -1, dtype=np.int64)
    price = np.full(count, np.inf, dtype=np.float32)
    looking = np.ones(count, dtype=np.bool_)
    costs = np.empty(count, dtype=np.float32)
    made = 0
    m = count
    while m > 1:
        for i in range(m):
            if looking[i]:
                price[i] = np.inf
                partner[i] = -1
        for i in range(m):
            if not looking[i]:
                continue
            _merging_costs(low, high, size, i, costs[:m])
            me = name[i]
            for j in range(m):
                cost = costs[j]
                if (cost > price[i] and cost > price[j]) or j == i:
                    continue
                # The cost counts for both sides, so that older clusters find new partners.
                you = name[j]
                if cost < price[i] or (cost == price[i] and _before(me, you, me, partner[i])):
                    price[i], partner[i] = cost, you
                if cost < price[j] or (cost == price[j] and _before(me, you, you, partner[j])):
                    price[j], partner[j] = cost, me
        looking[:m] = False
        before = made
        while made == before:
            for i in range(m):
                if name[i] < 0:
                    continue
                j = place[partner[i]]
                if j <= i or partner[j] != name[i]:
                    continue
                for side in range(2):
                    node = name[i] if side == 0 else name[j]
                    children[base + made, side] = rows[node] if node < count else n + base + node - count
                    place[node] = -1
                size[i] = 1.0
                for k in range(d):
                    low[k, i] = min(low[k, i], low[k, j])
                    high[k, i] = max(high[k, i], high[k, j])
                    size[i] *= high[k, i] - low[k, i]
                name[i] = count + made
                name[j] = -1
                looking[i] = True
                made += 1
            if made == before:
                # The order of pairs excludes this; it only prevents an endless loop.
                partner[0], partner[1] = name[1], name[0]
        kept = 0
        for i in range(m):
            if name[i] < 0:
                continue
            if kept < i:
                name[kept], size[kept], looking[kept] = name[i], size[i], looking[i]
                partner[kept], price[kept] = partner[i], price[i]
                for k in range(d):
                    low[k, kept] = low[k, i]
                    high[k, kept] = high[k, i]
            place[name[kept]] = kept
            kept += 1
        m = kept
        for i in range(m):
            if not looking[i] and place[partner[i]] < 0:
                looking[i] = True


@kernel
def grow_tree(a: Floats, b: Floats, bucket: int) -> Ints:
    """Returns the children of the inner nodes, (n - 1, 2); requires n >= 2."""
    n = a.shape[0]
    children = np.empty((n - 1, 2), dtype=np.int64)
    rows = np.arange(n)
    scratch = np.empty(n, dtype=np.int64)
    # A job is a range of rows and the position (inner node, side) of its root. Numbers are assigned from the
    # highest, so that parents have higher numbers than their children.
    jobs = np.empty((n + 1, 4), dtype=np.int64)
    jobs[0] = (0, n, -1, 0)
    waiting = 1
    free = n - 1
    while waiting > 0:
        waiting -= 1
        begin, end, parent, side = jobs[waiting]
        count = end - begin
        root = rows[begin] if count == 1 else n + free - 1
        if parent >= 0:
            children[parent, side] = root
        if count == 1:
            continue
        if count <= bucket:
            free -= count - 1
            _merge_bucket(a, b, rows[begin:end], children, free)
            continue
        free -= 1
        middle = _part(a, b, rows, begin, end, scratch)
        jobs[waiting] = (begin, middle, free, 0)
        jobs[waiting + 1] = (middle, end, free, 1)
        waiting += 2
    return children


@kernel
def bound_nodes(children: Ints, lo: Floats, hi: Floats) -> tuple[Floats, Floats]:
    """Computes the bounds of all nodes from those of the leaves; inner nodes come after their children."""
    n, d = lo.shape
    all_lo = np.empty((2 * n - 1, d))
    all_hi = np.empty((2 * n - 1, d))
    all_lo[:n] = lo
    all_hi[:n] = hi
    for i in range(n - 1):
        one, other = children[i]
        for j in range(d):
            all_lo[n + i, j] = min(all_lo[one, j], all_lo[other, j])
            all_hi[n + i, j] = max(all_hi[one, j], all_hi[other, j])
    return all_lo, all_hi
