"""The compiled loops that build a summary's hierarchy: a binary tree over unit rectangles, and its opening
order.

All of it happens in the unit cube of `edn.summary.measure`, where volume means share of the events. Nodes are
numbered leaves first: 0 … n - 1 are the rectangles, n … 2n - 2 the inner nodes, the root last.
"""

from __future__ import annotations

import numpy as np

from edn.summary.kernels import Floats, Ints, kernel

_BINS = 16
#: rows looked at to choose a split; all of them would cost more and choose the same
_LOOK = 1024


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
        if most <= least:
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
def split_tree(a: Floats, b: Floats) -> Ints:
    """Children of the inner nodes, (n - 1, 2), by splitting from the top; n is at least 2."""
    n = a.shape[0]
    children = np.empty((n - 1, 2), dtype=np.int64)
    rows = np.arange(n)
    # A job is a range of rows and the place (inner node, side) that waits for it; parents get higher numbers.
    jobs = np.empty((n + 1, 4), dtype=np.int64)
    jobs[0] = (0, n, -1, 0)
    waiting = 1
    following = n - 2
    scratch = np.empty(n, dtype=np.int64)
    while waiting > 0:
        waiting -= 1
        begin, end, parent, side = jobs[waiting]
        if end - begin == 1:
            children[parent, side] = rows[begin]
            continue
        node = following
        following -= 1
        if parent >= 0:
            children[parent, side] = n + node
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
        jobs[waiting] = (begin, middle, node, 0)
        jobs[waiting + 1] = (middle, end, node, 1)
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


@kernel
def _sift_up(keys: Floats, items: Ints, at: int) -> None:
    key, item = keys[at], items[at]
    while at > 0:
        above = (at - 1) >> 1
        if keys[above] <= key:
            break
        keys[at], items[at] = keys[above], items[above]
        at = above
    keys[at], items[at] = key, item


@kernel
def _sift_down(keys: Floats, items: Ints, count: int) -> None:
    key, item = keys[0], items[0]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        if below + 1 < count and keys[below + 1] < keys[below]:
            below += 1
        if keys[below] >= key:
            break
        keys[at], items[at] = keys[below], items[below]
        at = below
    keys[at], items[at] = key, item


@kernel
def uncovered(
    children: Ints, lo: Floats, hi: Floats, points: Floats, half_open: bool
) -> tuple[Ints, Ints, Ints]:
    """Points that no leaf contains, and the inner nodes that contain each: (points, starts, nodes).

    `half_open` is for the unit cube, where an upper bound is outside.
    """
    n = (lo.shape[0] + 1) // 2
    d = lo.shape[1]
    kept = np.empty(len(points), dtype=np.int64)
    starts = np.zeros(len(points) + 1, dtype=np.int64)
    nodes = np.empty(1024, dtype=np.int64)
    stack = np.empty(2 * n + 1, dtype=np.int64)
    count = 0
    used = 0
    for p in range(len(points)):
        begin = used
        stack[0] = 2 * n - 2
        depth = 1
        hit = False
        while depth > 0:
            depth -= 1
            node = stack[depth]
            inside = True
            for j in range(d):
                x = points[p, j]
                if x < lo[node, j] or x > hi[node, j] or (half_open and x == hi[node, j]):
                    inside = False
                    break
            if not inside:
                continue
            if node < n:
                hit = True
                break
            if used == len(nodes):
                grown = np.empty(2 * used, dtype=np.int64)
                grown[:used] = nodes
                nodes = grown
            nodes[used] = node - n
            used += 1
            stack[depth] = children[node - n, 0]
            stack[depth + 1] = children[node - n, 1]
            depth += 2
        if hit:
            used = begin
        else:
            kept[count] = p
            count += 1
            starts[count] = used
    return kept[:count], starts[: count + 1], nodes[:used]


@kernel
def closing_order(children: Ints, waste: Floats, starts: Ints, nodes: Ints) -> Ints:
    """Inner nodes in the order in which they should be closed, the cheapest first, children before parents.

    Closing a node replaces what is below it by its bounding rectangle. Its price is the number of sample
    points that become covered by that, so a point counts for the first node that covers it and is free for
    all later ones; `waste`, below 1, decides between equals. (starts, nodes) are the inner nodes that
    contain each point.
    """
    inner = len(children)
    n = inner + 1
    price = np.zeros(inner, dtype=np.int64)
    for at in range(len(nodes)):
        price[nodes[at]] += 1
    # The points in each node, from the nodes of each point.
    first = np.zeros(inner + 1, dtype=np.int64)
    for i in range(inner):
        first[i + 1] = first[i] + price[i]
    fill = first[:-1].copy()
    points = np.empty(len(nodes), dtype=np.int64)
    for p in range(len(starts) - 1):
        for at in range(starts[p], starts[p + 1]):
            points[fill[nodes[at]]] = p
            fill[nodes[at]] += 1
    parent = np.full(inner, -1, dtype=np.int64)
    open_children = np.zeros(inner, dtype=np.int64)
    for i in range(inner):
        for side in range(2):
            below = children[i, side]
            if below >= n:
                parent[below - n] = i
                open_children[i] += 1
    capacity = inner + len(nodes) + 1
    keys = np.empty(capacity)
    items = np.empty(capacity, dtype=np.int64)
    held = 0
    for i in range(inner):
        if open_children[i] == 0:
            keys[held] = price[i] + waste[i]
            items[held] = i
            held += 1
            _sift_up(keys, items, held - 1)
    order = np.empty(inner, dtype=np.int64)
    closed = np.zeros(inner, dtype=np.bool_)
    covered = np.zeros(len(starts) - 1, dtype=np.bool_)
    done = 0
    while held > 0:
        node = items[0]
        held -= 1
        keys[0], items[0] = keys[held], items[held]
        if held > 0:
            _sift_down(keys, items, held)
        # A node whose price fell is in the heap again under the lower one, which came first.
        if closed[node]:
            continue
        closed[node] = True
        order[done] = node
        done += 1
        for at in range(first[node], first[node + 1]):
            p = points[at]
            if covered[p]:
                continue
            covered[p] = True
            for other_at in range(starts[p], starts[p + 1]):
                other = nodes[other_at]
                price[other] -= 1
                if not closed[other] and open_children[other] == 0:
                    keys[held] = price[other] + waste[other]
                    items[held] = other
                    held += 1
                    _sift_up(keys, items, held - 1)
        above = parent[node]
        if above >= 0:
            open_children[above] -= 1
            if open_children[above] == 0:
                keys[held] = price[above] + waste[above]
                items[held] = above
                held += 1
                _sift_up(keys, items, held - 1)
    return order


@kernel
def node_waste(children: Ints, a: Floats, b: Floats) -> Floats:
    """Volume of each inner node that its two children leave free, at most just below 1."""
    inner = len(children)
    n = inner + 1
    waste = np.empty(inner)
    for i in range(inner):
        one, other = children[i]
        common = 1.0
        for j in range(a.shape[1]):
            common *= max(0.0, min(b[one, j], b[other, j]) - max(a[one, j], a[other, j]))
        free = volume(a[n + i], b[n + i]) - volume(a[one], b[one]) - volume(a[other], b[other]) + common
        waste[i] = min(max(free, 0.0), 0.999)
    return waste


@kernel
def depths(children: Ints) -> Ints:
    """How deep each inner node lies; here inner nodes come first, parents before children."""
    inner = len(children)
    depth = np.zeros(inner, dtype=np.int64)
    for i in range(inner):
        for side in range(2):
            below = children[i, side]
            if below < inner:
                depth[below] = depth[i] + 1
    return depth


def weighted_order(children: Ints, lo: Floats, hi: Floats, points: Floats) -> Ints:
    """Another opening order, for a sample of events; here inner nodes come first, parents before children."""
    inner = len(children)
    if inner == 0:
        return np.empty(0, dtype=np.int64)
    # To "leaves first, children before parents" and back: node x becomes 2n - 2 - x.
    last = 2 * inner
    turned = np.ascontiguousarray(last - children[::-1])
    low, high = np.ascontiguousarray(lo[::-1]), np.ascontiguousarray(hi[::-1])
    _, starts, nodes = uncovered(turned, low, high, points, False)
    # Among equals the later of the present order is closed first.
    waste = np.arange(inner) / (inner + 1.0)
    return inner - 1 - closing_order(turned, waste, starts, nodes)[::-1]
