"""Chooses the hierarchy of a summary: builds several, and selects the one whose cuts cover least.

Merging from the bottom finds the best pairs, so fine cuts are good; coarse cuts are poor, because it
considers only pairs. Splitting from the top is the opposite. A **graft** combines both: the merged tree below
a cut of some size, and above that cut a tree split from the top over exactly its rectangles. The best height
differs (high if few attributes matter, low if many do, because then every rectangle is small and pairs
matter), so grafts at several heights are compared, and for small sets the split tree itself.

All are compared on the same points of the unit cube, where volume is the expected share of events (see
`edn.summary.measure`): the cost of a cut is the number of points that it covers and no rectangle does. Points
inside a rectangle are useless, so points are drawn until enough others are found.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edn.arrays import Floats, Ints
from edn.summary import opening, tree

#: points outside all rectangles for the final order, for drafts, and for the comparison of hierarchies
_ORDERING = 12_288
_DRAFTING = 4096
_JUDGING = 2048
#: maximal number of drawn points, and points per draw
_DRAWS = 65_536
_CHUNK = 8192
#: range of the size of a bucket that is merged from the bottom; within it (number of rectangles) × (size of a
#: bucket), which determines the time, is about `_MERGING`
_BUCKET = (1024, 4096)
_MERGING = 40_000_000
#: rectangles per node of the cuts above which grafts are built
_HEIGHTS = (2, 8)
#: size up to which all hierarchies are tried, and size beyond which only one is built
_SMALL = 1024
_LARGE = 32_768
#: precisions at which hierarchies are compared
_PRECISIONS = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)


@dataclass(slots=True)
class _Sample:
    """Points of the unit cube outside all rectangles, drawn on demand."""

    dimensions: int
    points: Floats = field(init=False)
    drawn: int = 0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def __post_init__(self) -> None:
        self.points = np.empty((0, self.dimensions))

    def placed(self, children: Ints, a: Floats, b: Floats, wanted: int) -> tuple[Ints, Ints]:
        """Draws points until there are `wanted`, if possible; returns the inner nodes that contain each."""
        _, starts, nodes = opening.uncovered(children, a, b, self.points, True)
        all_starts, all_nodes, found = [starts], [nodes], len(nodes)
        while len(self.points) < wanted and self.drawn < _DRAWS:
            fresh = self.rng.random((_CHUNK, self.dimensions))
            rows, starts, nodes = opening.uncovered(children, a, b, fresh, True)
            self.points = np.concatenate([self.points, fresh[rows]])
            self.drawn += _CHUNK
            all_starts.append(found + starts[1:])
            found += len(nodes)
            all_nodes.append(nodes)
        return np.concatenate(all_starts), np.concatenate(all_nodes)


def shape(a: Floats, b: Floats, *, split_only: bool = False) -> tuple[Ints, Ints]:
    """Returns the children of the inner nodes and their closing order; numbers as in `edn.summary.tree`.

    Requires at least two rectangles in the unit cube.
    """
    n = len(a)
    sample = _Sample(a.shape[1])
    if split_only:
        children = tree.grow_tree(a, b, 1)
        return children, _closing(children, a, b, sample, _ORDERING)[0]
    merged = tree.grow_tree(a, b, int(np.clip(_MERGING // n, *_BUCKET)))
    draft, _ = _closing(merged, a, b, sample, _DRAFTING)
    heights = _HEIGHTS if n <= _LARGE else _HEIGHTS[-1:]
    hierarchies = [graft(merged, draft, a, b, max(2, n // height)) for height in heights]
    if n <= _SMALL:
        hierarchies += [merged, tree.grow_tree(a, b, 1)]
    children = hierarchies[0]
    if len(hierarchies) > 1:
        judges = sample.points[:_JUDGING]
        children = min(hierarchies, key=lambda hierarchy: _charge(hierarchy, a, b, judges))
    return children, _closing(children, a, b, sample, _ORDERING)[0]


def graft(children: Ints, closing: Ints, a: Floats, b: Floats, cut: int) -> Ints:
    """Replaces the part of a tree above a cut by a tree split from the top."""
    n = len(a)
    a, b = tree.bound_nodes(children, a, b)
    # Sorted, so that children keep lower numbers than parents.
    kept = np.sort(closing[: n - cut])
    number = np.arange(2 * n - 1)
    number[n + kept] = n + np.arange(len(kept))
    is_kept = np.zeros(2 * n - 1, dtype=np.bool_)
    is_kept[:n] = True
    is_kept[n + kept] = True
    is_top = is_kept.copy()
    is_top[children[kept]] = False
    top = np.flatnonzero(is_top)
    above = tree.grow_tree(a[top], b[top], 1)
    renumbered = np.concatenate([number[top], n + len(kept) + np.arange(len(above))])
    return np.concatenate([number[children[kept]], renumbered[above]])


def _closing(children: Ints, a: Floats, b: Floats, sample: _Sample, wanted: int) -> tuple[Ints, Ints]:
    a, b = tree.bound_nodes(children, a, b)
    starts, nodes = sample.placed(children, a, b, wanted)
    return opening.closing_order(children, opening.node_waste(children, a, b), starts, nodes)


def _charge(children: Ints, a: Floats, b: Floats, judges: Floats) -> int:
    """Counts the points that the cuts at `_PRECISIONS` cover in total."""
    a, b = tree.bound_nodes(children, a, b)
    _, starts, nodes = opening.uncovered(children, a, b, judges, True)
    _, spent = opening.closing_order(children, opening.node_waste(children, a, b), starts, nodes)
    cuts = {max(1, int(precision * (len(children) + 1))) for precision in _PRECISIONS}
    return sum(int(spent[len(children) - k]) for k in cuts)
