"""The compiled loops that build a summary's hierarchy: a binary tree over rectangles in the unit cube.

There volume means share of the events (see `edn.summary.measure`). From the top the set is split until at
most some thousand rectangles are left together; within such a bucket pairs are merged from the bottom, the
pair first that adds least to the larger of its two. Splitting alone pairs badly at the bottom, where
precise summaries are cut; merging alone, besides being quadratic, forgets at the top what lies far apart.

Nodes are numbered leaves first: 0 … n - 1 are the rectangles, n … 2n - 2 the inner nodes, each after its
children, the root last.
"""

from __future__ import annotations

import numpy as np

from edn.arrays import Floats, Ints, Singles
from edn.summary.kernels import finite_kernel, kernel

_BINS = 16
#: rows looked at to choose a split; all of them would cost more and choose the same
_LOOK = 1024
#: differences in the unit cube that are none
_CLOSE = 1e-300


@kernel
def volume(a: Floats, b: Floats) -> float:
    product = 1.0
    for j in range(len(a)):
        product *= b[j] - a[j]
    return product


@kernel
def _choose_split(a: Floats, b: Floats, rows: Ints) -> tuple[int, float]:
    """The key (3j lower bound, 3j + 1 upper bound, 3j + 2 twice the centre) and border of the best split.

    Best is the least sum of (rectangles × volume of their bounding rectangle) over the two sides. The key is
    -1 where nothing splits: all are alike.
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
        # So close to each other, they would be in bins whose number is infinite.
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
    """Reorder rows[begin:end] into two sides and return where the second begins; none is empty."""
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
    """What merging cluster i with each other one adds to the larger of the two; one row a dimension.

    This is the innermost loop of all: slices of known length, single precision and no branches let the
    compiler take eight or sixteen clusters at a time.
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
    """Whether the pair {a, b} comes before {c, d}: the order among pairs of equal cost."""
    low, other = min(a, b), min(c, d)
    return low < other or (low == other and max(a, b) < max(c, d))


@kernel
def _merge_bucket(a: Floats, b: Floats, rows: Ints, children: Ints, base: int) -> None:
    """Merges the rectangles `rows` into one tree: inner nodes `base` … of `children`, the last is its root.

    In rounds: every cluster knows its cheapest partner, and those who are each other's are merged. Only
    clusters that are new or lost their partner look for one again. Pairs of equal cost have an order of
    their own, so that one pair is the first of all and each round merges at least that.
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
    # Clusters are numbered like nodes, here 0 … 2 count - 2; `place` is where one lies now, -1 when it is
    # gone.
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
                # A cost that the other side learns too: new clusters are known to all who gain by them.
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
                # The order of pairs rules this out; a server must not hang should it ever fail.
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
    """Children of the inner nodes, (n - 1, 2); n is at least 2."""
    n = a.shape[0]
    children = np.empty((n - 1, 2), dtype=np.int64)
    rows = np.arange(n)
    scratch = np.empty(n, dtype=np.int64)
    # A job is a range of rows, and the place (inner node, side) that waits for its root. Numbers are dealt
    # from the highest, so that a parent's is above its children's.
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
    """Bounds of all nodes from those of the leaves; inner nodes come after their children."""
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
