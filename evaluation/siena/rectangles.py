"""Interest in rectangles on a tree of servers: by covering, and by our summaries.

Both are the acyclic peer-to-peer architecture. With *covering*, a server tells a neighbour every rectangle
that no other told one covers; an unsubscription cancels it and tells what it uncovers. With *summaries*, a
server tells a neighbour at most k rectangles that contain everything behind it, the product's own cut. A
new rectangle outside them is told at once (a widening); an unsubscription sends nothing, and the next
report is narrower. Reports are sent between rounds, over links where they changed.

Requests are processed one after the other, each until no message is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from edn.arrays import Bools, Floats
from edn.summary import Maximal, Summary
from evaluation.siena.network import Tree

#: rectangles of a report, from all rectangles behind a link
Cut = Callable[[Floats, Floats], tuple[Floats, Floats]]


class Rows:
    """A small set of rectangles with ids."""

    def __init__(self, dimensions: int) -> None:
        self.ids: list[int] = []
        self.lo: Floats = np.empty((0, dimensions))
        self.hi: Floats = np.empty((0, dimensions))

    def __len__(self) -> int:
        return len(self.ids)

    def covers(self, lo: Floats, hi: Floats) -> bool:
        """Tells whether one rectangle contains another one."""
        return bool(((self.lo <= lo) & (self.hi >= hi)).all(axis=1).any())

    def inside(self, lo: Floats, hi: Floats) -> Bools:
        return np.asarray(((self.lo >= lo) & (self.hi <= hi)).all(axis=1), dtype=np.bool_)

    def contain(self, points: Floats) -> Bools:
        """Tells for each point whether a rectangle contains it."""
        found = np.zeros(len(points), dtype=np.bool_)
        for lo, hi in zip(self.lo, self.hi, strict=True):
            found |= ((points >= lo) & (points <= hi)).all(axis=1)
        return found

    def add(self, id: int, lo: Floats, hi: Floats) -> None:
        self.ids.append(id)
        self.lo, self.hi = np.vstack([self.lo, lo]), np.vstack([self.hi, hi])

    def keep(self, kept: Bools) -> None:
        self.ids = [id for id, keep in zip(self.ids, kept, strict=True) if keep]
        self.lo, self.hi = self.lo[kept], self.hi[kept]

    def remove(self, id: int) -> None:
        self.keep(np.array([one != id for one in self.ids], dtype=np.bool_))

    def replace(self, lo: Floats, hi: Floats) -> None:
        self.ids, self.lo, self.hi = [-1] * len(lo), lo, hi


@dataclass
class Counters:
    subscribe: int = 0
    unsubscribe: int = 0
    report: int = 0
    #: rectangles in reports
    reported: int = 0
    requests: dict[str, int] = field(default_factory=lambda: {"subscribe": 0, "unsubscribe": 0})


class RectangleTree:
    def __init__(self, tree: Tree, dimensions: int, cut: Cut | None = None) -> None:
        """`cut` makes reports; without it, interest is told by covering."""
        self._near = tree.neighbours()
        self._order = tree.order
        self._parent = tree.parent
        self._cut = cut
        self.own = [Rows(dimensions) for _ in self._near]
        #: (u, w) → what u told w
        self.told = {(u, w): Rows(dimensions) for u, near in enumerate(self._near) for w in near}
        self.sent = Counters()
        self._dimensions = dimensions

    def subscribe(self, id: int, site: int, lo: Floats, hi: Floats) -> None:
        self.sent.requests["subscribe"] += 1
        self.own[site].add(id, lo, hi)
        self.sent.subscribe += self._spread(id, site, -1, lo, hi)

    def unsubscribe(self, id: int, site: int) -> None:
        self.sent.requests["unsubscribe"] += 1
        at = self.own[site].ids.index(id)
        lo, hi = self.own[site].lo[at].copy(), self.own[site].hi[at].copy()
        self.own[site].remove(id)
        if self._cut is None:
            self.sent.unsubscribe += self._withdraw(id, site, -1, lo, hi)

    def report(self) -> None:
        """Makes all reports anew, from the leaves to the root and back."""
        if self._cut is None:
            return
        edges = [(site, self._parent[site]) for site in reversed(self._order[1:])]
        edges += [(above, site) for site in self._order for above in [self._parent[site]] if above >= 0]
        for u, w in edges:
            parts = [self.own[u], *(self.told[y, u] for y in self._near[u] if y != w)]
            lo = np.vstack([part.lo for part in parts])
            hi = np.vstack([part.hi for part in parts])
            lo, hi = self._cut(lo, hi) if len(lo) else (lo, hi)
            old = self.told[u, w]
            if old.lo.shape != lo.shape or (old.lo != lo).any() or (old.hi != hi).any():
                self.sent.report += 1
                self.sent.reported += len(lo)
                old.replace(lo, hi)

    def crossings(self, points: Floats, sites: list[int]) -> tuple[int, int, int]:
        """Publishes points; returns crossings of links, useless ones, and missed (point, site) pairs."""
        wanted = [rows.contain(points) for rows in self.own]
        passes = {edge: rows.contain(points) for edge, rows in self.told.items()}
        behind: dict[tuple[int, int], Bools] = {}
        for site in reversed(self._order[1:]):
            above = self._parent[site]
            below = [behind[y, site] for y in self._near[site] if y != above]
            behind[site, above] = np.logical_or.reduce([wanted[site], *below])
        for site in self._order:
            for w in self._near[site]:
                if self._parent[w] == site:
                    others = [behind[y, site] for y in self._near[site] if y != w]
                    behind[site, w] = np.logical_or.reduce([wanted[site], *others])
        crossed = useless = missed = 0
        for at, source in enumerate(sites):
            reached = {source}
            stack = [source]
            while stack:
                u = stack.pop()
                for w in self._near[u]:
                    if w not in reached and passes[w, u][at]:
                        crossed += 1
                        useless += not behind[w, u][at]
                        reached.add(w)
                        stack.append(w)
            missed += sum(bool(some[at]) and site not in reached for site, some in enumerate(wanted))
        return crossed, useless, missed

    @property
    def state(self) -> float:
        """Rectangles per direction of a link."""
        return float(np.mean([len(rows) for rows in self.told.values()])) if self.told else 0.0

    def _spread(self, id: int, site: int, sender: int, lo: Floats, hi: Floats) -> int:
        """Tells a rectangle to all neighbours that need it; returns the number of messages."""
        count = 0
        stack = [(site, sender)]
        while stack:
            u, x = stack.pop()
            for w in self._near[u]:
                rows = self.told[u, w]
                if w == x or rows.covers(lo, hi):
                    continue
                if self._cut is None:
                    rows.keep(~rows.inside(lo, hi))
                rows.add(id, lo, hi)
                count += 1
                stack.append((w, u))
        return count

    def _withdraw(self, id: int, u: int, x: int, lo: Floats, hi: Floats) -> int:
        count = 0
        for w in self._near[u]:
            rows = self.told[u, w]
            if w == x or id not in rows.ids:
                continue
            rows.remove(id)
            count += 1 + self._withdraw(id, w, u, lo, hi)
            for other, low, high in self._uncovered(u, w, lo, hi):
                if not rows.covers(low, high):
                    rows.keep(~rows.inside(low, high))
                    rows.add(other, low, high)
                    count += 1 + self._spread(other, w, u, low, high)
        return count

    def _uncovered(self, u: int, w: int, lo: Floats, hi: Floats) -> Iterator[tuple[int, Floats, Floats]]:
        """Yields the rectangles inside a withdrawn one that u knows from elsewhere, large ones first."""
        found = []
        for part in [self.own[u], *(self.told[y, u] for y in self._near[u] if y != w)]:
            for at in np.flatnonzero(part.inside(lo, hi)):
                size = float((part.hi[at] - part.lo[at]).sum())
                found.append((-size, part.ids[at], part.lo[at].copy(), part.hi[at].copy()))
        for _, id, low, high in sorted(found, key=lambda one: one[:2]):
            yield id, low, high


def summary_cut(k: int | None) -> Cut:
    """Returns the product's summary of at most k rectangles; None is the precise one."""

    def cut(lo: Floats, hi: Floats) -> tuple[Floats, Floats]:
        maximal = Maximal(lo.shape[1])
        maximal.insert(range(len(lo)), lo, hi)
        low, high = maximal.rects()
        order = np.lexsort(np.hstack([low, high]).T)
        low, high = low[order], high[order]
        if k is None or k >= len(low):
            return low, high
        return Summary.build(low, high).cut(k)

    return cut


def merged_intervals(lo: Floats, hi: Floats) -> tuple[Floats, Floats]:
    """Merges intervals of integers whose union is an interval: = 1, = 2 and > 2 are > 0."""
    order = np.argsort(lo[:, 0], kind="stable")
    low: list[float] = []
    high: list[float] = []
    for at in order:
        a, b = float(lo[at, 0]), float(hi[at, 0])
        if high and a <= high[-1] + 1:
            high[-1] = max(high[-1], b)
        else:
            low.append(a)
            high.append(b)
    return np.array(low)[:, None], np.array(high)[:, None]


def bounding(lo: Floats, hi: Floats) -> tuple[Floats, Floats]:
    """Merges everything into one rectangle."""
    return lo.min(axis=0, keepdims=True), hi.max(axis=0, keepdims=True)
