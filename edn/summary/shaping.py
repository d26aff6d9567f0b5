"""Which hierarchy a summary gets: several are drawn up, and the one whose cuts cover least is taken.

Merging from the bottom pairs best, so it decides what fine cuts look like; what it makes of the few large
rectangles of a coarse cut is poor, because it looks at pairs only. Splitting from the top is the opposite. A
**graft** has the best of both: the merged tree, below the cut of some number of rectangles, and above that
cut a tree that is split from the top over exactly those rectangles. Where the border should lie differs (high
where few attributes count, low where many do, as then every rectangle is small and pairs matter), so
grafts at several heights are compared, and for small sets the split tree itself.

All are judged by the same points of the unit cube, where volume means share of the events (see
`edn.summary.measure`): a cut is charged with those that it covers and no rectangle does. Points inside a
rectangle tell nothing, so points are drawn until enough others are found.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edn.arrays import Floats, Ints
from edn.summary import opening, tree

#: points outside all rectangles that order the openings, and that decide between hierarchies
_ORDERING = 12_288
_DRAFTING = 4096
_JUDGING = 2048
#: points drawn at most to find them, and at once
_DRAWS = 65_536
_CHUNK = 8192
#: how many rectangles are merged from the bottom: within these bounds as many as keep (number of
#: rectangles) × (size of a bucket), to which the time is proportional, near this
_BUCKET = (1024, 4096)
_MERGING = 40_000_000
#: grafts are made above the cuts of one rectangle in so many
_HEIGHTS = (2, 8)
#: sets so small that every hierarchy is worth a try, and so large that one must do
_SMALL = 1024
_LARGE = 32_768
#: the precisions that count when hierarchies are judged
_PRECISIONS = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)


@dataclass(slots=True)
class _Sample:
    """Points of the unit cube that no rectangle contains, as many as were needed so far."""

    dimensions: int
    points: Floats = field(init=False)
    drawn: int = 0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def __post_init__(self) -> None:
        self.points = np.empty((0, self.dimensions))

    def placed(self, children: Ints, a: Floats, b: Floats, wanted: int) -> tuple[Ints, Ints]:
        """At least that many points, or all that could be found: the inner nodes that contain each."""
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
    """Children of the inner nodes, and the order in which to close them; numbers as in `edn.summary.tree`.

    For two rectangles or more, in the unit cube.
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
    """The same tree below its cut of that many rectangles, and a tree split from the top above it."""
    n = len(a)
    a, b = tree.bound_nodes(children, a, b)
    # Children before parents is the order of numbers, too; it must survive.
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
    """How many points the cuts at the precisions that count cover, together."""
    a, b = tree.bound_nodes(children, a, b)
    _, starts, nodes = opening.uncovered(children, a, b, judges, True)
    _, spent = opening.closing_order(children, opening.node_waste(children, a, b), starts, nodes)
    cuts = {max(1, int(precision * (len(children) + 1))) for precision in _PRECISIONS}
    return sum(int(spent[len(children) - k]) for k in cuts)
