"""Kernels that compute the opening order of a hierarchy.

Reversed, an opening order closes nodes: it begins with all rectangles and replaces two siblings by their
parent until only the root is left. The cost of a closing is known exactly on a sample of events: those in the
parent and in no rectangle used so far. So the order is computed from that end, cheapest first.

Nodes are numbered as in `edn.summary.tree`, leaves first, except in the last two functions.
"""

from __future__ import annotations

import numpy as np

from edn.arrays import Floats, Ints
from edn.summary.kernels import kernel
from edn.summary.tree import volume


@kernel
def _push(keys: Floats, items: Ints, held: int, key: float, item: int) -> int:
    """Adds an item to a heap of `held` items; returns its new size."""
    at = held
    while at > 0:
        above = (at - 1) >> 1
        if keys[above] <= key:
            break
        keys[at], items[at] = keys[above], items[above]
        at = above
    keys[at], items[at] = key, item
    return held + 1


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
    """Finds the points in no leaf, and the inner nodes that contain each: (rows, starts, nodes).

    `half_open` is for the unit cube, where upper bounds are outside.
    """
    n = (lo.shape[0] + 1) // 2
    d = lo.shape[1]
    rows = np.empty(len(points), dtype=np.int64)
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
            rows[count] = p
            count += 1
            starts[count] = used
    return rows[:count], starts[: count + 1], nodes[:used]


@kernel
def closing_order(children: Ints, waste: Floats, starts: Ints, nodes: Ints) -> tuple[Ints, Ints]:
    """Returns the closing order of inner nodes, cheapest first, and the covered points after each closing.

    Closing a node replaces its children by its bounding rectangle. Its price is the number of sample points
    that become covered, so a point counts only for the first node that covers it; `waste`, below 1, breaks
    ties. Children come before parents. (starts, nodes) are the inner nodes that contain each point.
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
            held = _push(keys, items, held, price[i] + waste[i], i)
    order = np.empty(inner, dtype=np.int64)
    spent = np.zeros(inner, dtype=np.int64)
    total = 0
    closed = np.zeros(inner, dtype=np.bool_)
    covered = np.zeros(len(starts) - 1, dtype=np.bool_)
    done = 0
    while held > 0:
        node = items[0]
        held -= 1
        keys[0], items[0] = keys[held], items[held]
        if held > 0:
            _sift_down(keys, items, held)
        # A node whose price fell is in the heap twice; the lower price came first.
        if closed[node]:
            continue
        closed[node] = True
        order[done] = node
        for at in range(first[node], first[node + 1]):
            p = points[at]
            if covered[p]:
                continue
            covered[p] = True
            total += 1
            for other_at in range(starts[p], starts[p + 1]):
                other = nodes[other_at]
                price[other] -= 1
                if not closed[other] and open_children[other] == 0:
                    held = _push(keys, items, held, price[other] + waste[other], other)
        spent[done] = total
        done += 1
        above = parent[node]
        if above >= 0:
            open_children[above] -= 1
            if open_children[above] == 0:
                held = _push(keys, items, held, price[above] + waste[above], above)
    return order, spent


@kernel
def node_waste(children: Ints, a: Floats, b: Floats) -> Floats:
    """Returns the volume of each inner node outside its two children, limited to below 1."""
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
    """Returns the depth of each inner node; here inner nodes come first, parents before children."""
    inner = len(children)
    depth = np.zeros(inner, dtype=np.int64)
    for i in range(inner):
        for side in range(2):
            below = children[i, side]
            if below < inner:
                depth[below] = depth[i] + 1
    return depth


def weighted_order(children: Ints, lo: Floats, hi: Floats, points: Floats) -> Ints:
    """Returns the opening order for a sample of events; inner nodes come first, parents before children."""
    inner = len(children)
    if inner == 0:
        return np.empty(0, dtype=np.int64)
    # To "leaves first, children before parents" and back: node x becomes 2n - 2 - x.
    last = 2 * inner
    turned = np.ascontiguousarray(last - children[::-1])
    low, high = np.ascontiguousarray(lo[::-1]), np.ascontiguousarray(hi[::-1])
    _, starts, nodes = uncovered(turned, low, high, points, False)
    # Ties: the node that is opened later in the stored order is closed first.
    waste = np.arange(inner) / (inner + 1.0)
    order, _ = closing_order(turned, waste, starts, nodes)
    return inner - 1 - order[::-1]
