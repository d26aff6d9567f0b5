"""The top-down greedy split of subscriptions into N parts of equal size with small bounding rectangles.

A node contains the rows of one or more final parts. It is cut in two, at a border of final parts, in the
ordering (by lower bound, upper bound or centre of one dimension) of least cost; then its halves are cut,
until every node is one part. All nodes of a level are cut together, so the number of passes depends on the
depth.

Part i of n rows begins at row i × n // N, so sizes differ by at most one. Rows with equal keys are ordered
by row number, which follows the ids. Of cuts with equal cost the first dimension is chosen, then lower bound
before upper bound before centre, then the cut with fewer parts on the left. So the result does not depend on
the distribution of the rows over machines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from edn.arrays import Floats, Ints, Words
from edn.index.compilation import on_first_use
from partitioning.contents import Contents, EventSample
from partitioning.rows import Chunk, Rows
from partitioning.selection import Cut, select
from partitioning.space import Space

Progress = Callable[[int, int], None]

#: orderings of a dimension: lower bound, upper bound, centre
KINDS = 3


class Measure(Protocol):
    @property
    def contents(self) -> Contents: ...

    def cost(self, left: Words, right: Words, parts: range, middle: int) -> tuple[float, ...]:
        """Return the cost of a cut with parts.start … middle - 1 on the left, compared item by item."""
        ...


@dataclass(frozen=True, slots=True)
class Volume:
    """The sum of the volumes of the two bounding rectangles: the published criterion, for even events.

    With distances each volume is weighted by the mean distance of the servers on its side.
    """

    contents: Contents
    #: of the server of each part; None: all equal
    distances: tuple[float, ...] | None = None

    @classmethod
    def over(cls, space: Space, distances: Sequence[float] | None = None) -> Volume:
        return cls(Contents(space=space), None if distances is None else tuple(distances))

    def cost(self, left: Words, right: Words, parts: range, middle: int) -> tuple[float, ...]:
        total = 0.0
        for content, start, stop in ((left, parts.start, middle), (right, middle, parts.stop)):
            total += self.volume(content) * mean_distance(self.distances, start, stop)
        return (total,)

    def volume(self, content: Words) -> float:
        assert self.contents.space is not None
        return float(self.contents.space.volume(*self.contents.box(content)))


@dataclass(frozen=True, slots=True)
class Traffic:
    """The sampled events that match each side, times the square root of its number of servers.

    It uses the union of the rectangles, not their bounding rectangle. If later cuts did not help, every
    server of a side would get all its events; if they were perfect, only one would. The square root is in
    between, and was the best of the exponents 0, 1/4, 1/2 and 1 on even, normal and Zipf-like events. Volume
    breaks ties, which are common where no events are.
    """

    contents: Contents
    distances: tuple[float, ...] | None = None

    @classmethod
    def over(cls, space: Space, events: Floats, distances: Sequence[float] | None = None) -> Traffic:
        contents = Contents(space, EventSample.of(events))
        return cls(contents, None if distances is None else tuple(distances))

    def cost(self, left: Words, right: Words, parts: range, middle: int) -> tuple[float, ...]:
        total = 0.0
        volume = Volume(self.contents, self.distances)
        for content, start, stop in ((left, parts.start, middle), (right, middle, parts.stop)):
            events = int(self.contents.events(content))
            total += events * math.sqrt(stop - start) * mean_distance(self.distances, start, stop)
        return (total, *volume.cost(left, right, parts, middle))


def mean_distance(distances: Sequence[float] | None, start: int, stop: int) -> float:
    return 1.0 if distances is None else sum(distances[start:stop]) / (stop - start)


@dataclass(frozen=True, slots=True)
class Tree:
    """A binary tree of cuts, which finds the leaf of a row.

    A child that is not negative is a cut; otherwise ~child is a leaf.
    """

    space: Space
    root: int
    #: dimension × KINDS + kind
    ordering: Ints
    key: Floats
    row: Ints
    #: (cuts, 2): left and right child
    children: Ints

    @classmethod
    def trunk(cls, space: Space) -> Tree:
        """Return a tree without cuts: one leaf, number 0."""
        none = np.empty(0, dtype=np.int64)
        return cls(space, ~0, none, np.empty(0), none, np.empty((0, 2), dtype=np.int64))

    def parts(self, chunk: Chunk) -> Ints:
        return self.leaves(chunk, self.keys(chunk))

    def leaves(self, chunk: Chunk, keys: Floats) -> Ints:
        return _leaves(keys, chunk.rows, self.root, self.ordering, self.key, self.row, self.children)

    def keys(self, chunk: Chunk) -> Floats:
        low, high = self.space.clamp(chunk.lo, chunk.hi)
        # The sum has the order of the centre, without another rounding.
        return np.stack([low, high, low + high], axis=2).reshape(len(chunk), -1)

    def cut(self, leaf: int, ordering: int, cut: Cut, left: int, right: int) -> Tree:
        """Return the tree with one leaf cut in two."""
        number = len(self.key)
        children = np.where(self.children == ~leaf, number, self.children)
        return Tree(
            self.space,
            number if self.root == ~leaf else self.root,
            np.append(self.ordering, ordering),
            np.append(self.key, cut.key),
            np.append(self.row, cut.row),
            np.vstack([children, [[~left, ~right]]]),
        )


@dataclass(frozen=True, slots=True)
class _Orderings:
    """The keys of the split; nodes are the leaves that are not final."""

    tree: Tree
    #: node of each leaf; -1: it is final
    node: Ints

    @property
    def orderings(self) -> int:
        return KINDS * self.tree.space.dimensions

    def of(self, chunk: Chunk) -> tuple[Ints, Floats]:
        keys = self.tree.keys(chunk)
        return self.node[self.tree.leaves(chunk, keys)], keys


def borders(count: int, parts: int) -> Ints:
    """Return the borders of equal parts: part i has the rows borders[i] … borders[i + 1] - 1."""
    return np.array([i * count // parts for i in range(parts + 1)], dtype=np.int64)


def split(
    rows: Rows, parts: int, measure: Measure, progress: Progress | None = None, *, halve: bool = False
) -> Tree:
    """Cut the rows into parts, at most as many as rows; leaf i of the tree is part i.

    With `halve` only the middle border of a node is considered, which is cheaper for many parts.
    """
    edge = borders(rows.count, parts)
    tree = Tree.trunk(rows.space)
    # The number of a leaf is that of its first part.
    open_leaves: dict[int, range] = {0: range(parts)} if parts > 1 else {}
    boxes = {0: _everywhere(rows.space)}
    while open_leaves:
        if progress is not None:
            progress(parts - sum(len(leaf) - 1 for leaf in open_leaves.values()) - 1, parts - 1)
        tree, open_leaves, boxes = _cut_level(rows, tree, open_leaves, boxes, edge, measure, halve)
    if progress is not None:
        progress(parts - 1, parts - 1)
    return tree


Box = tuple[Floats, Floats]


def _cut_level(
    rows: Rows,
    tree: Tree,
    leaves: dict[int, range],
    boxes: dict[int, Box],
    edge: Ints,
    measure: Measure,
    halve: bool,
) -> tuple[Tree, dict[int, range], dict[int, Box]]:
    node = np.full(len(edge), -1, dtype=np.int64)
    node[list(leaves)] = np.arange(len(leaves))
    keys = _Orderings(tree, node)
    spans: dict[int, tuple[float, float]] = {}
    targets = []
    for number, (leaf, parts) in enumerate(leaves.items()):
        low, high = boxes[leaf]
        for ordering in range(keys.orderings):
            j, kind = divmod(ordering, KINDS)
            group = number * keys.orderings + ordering
            twice = 2.0 if kind == KINDS - 1 else 1.0
            spans[group] = (twice * float(low[j]), twice * float(high[j]))
            targets += [(group, int(edge[middle] - edge[parts.start])) for middle in _middles(parts, halve)]
    cuts = select(rows, keys, measure.contents, spans, targets)
    deeper: dict[int, range] = {}
    bounds: dict[int, Box] = {}
    for number, (leaf, parts) in enumerate(leaves.items()):
        best: tuple[tuple[float, ...], int, int] | None = None
        for ordering in range(keys.orderings):
            for middle in _middles(parts, halve):
                cut = cuts[number * keys.orderings + ordering, int(edge[middle] - edge[parts.start])]
                candidate = (measure.cost(cut.left, cut.right, parts, middle), ordering, middle)
                if best is None or candidate < best:
                    best = candidate
        assert best is not None
        _, ordering, middle = best
        cut = cuts[number * keys.orderings + ordering, int(edge[middle] - edge[parts.start])]
        tree = tree.cut(leaf, ordering, cut, parts.start, middle)
        for side, content in ((range(parts.start, middle), cut.left), (range(middle, parts.stop), cut.right)):
            if len(side) > 1:
                deeper[side.start] = side
                bounds[side.start] = measure.contents.box(content)
    return tree, deeper, bounds


def _middles(parts: range, halve: bool) -> range:
    """Return the borders at which a node may be cut."""
    middle = (parts.start + parts.stop) // 2
    return range(middle, middle + 1) if halve else parts[1:]


def _everywhere(space: Space) -> Box:
    d = space.dimensions
    low, high = space.clamp(np.full((1, d), -np.inf), np.full((1, d), np.inf))
    return low[0], high[0]


@on_first_use
def _leaves(
    keys: Floats, rows: Ints, root: int, ordering: Ints, key: Floats, row: Ints, children: Ints
) -> Ints:
    out = np.empty(keys.shape[0], dtype=np.int64)
    for i in range(keys.shape[0]):
        at = root
        while at >= 0:
            mine = keys[i, ordering[at]]
            left = mine < key[at] or (mine == key[at] and rows[i] <= row[at])
            at = children[at, 0 if left else 1]
        out[i] = ~at
    return out
