"""Contents: mergeable descriptions of sets of subscriptions.

The *content* of a set is a vector of 64-bit words. First one bit per event of a sample, set if a rectangle
of the set contains the event; then, as doubles, the bounding rectangle of the clamped rectangles, with
negated upper bounds. So contents are merged by OR on the first words and minimum on the others, in any
order, and the content of the empty set is zeros and infinities. Both parts are optional.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edn.arrays import Floats, Ints, Words
from edn.index.compilation import on_first_use
from partitioning.rows import Chunk
from partitioning.space import Space


@dataclass(frozen=True, slots=True)
class EventSample:
    """A sample of events, indexed to find the events inside a rectangle by a few word operations.

    For each dimension it has the sorted coordinates and, for each position, the set of the events before it.
    The events within one side are the difference of two sets, those inside the rectangle the intersection
    over the sides.
    """

    count: int
    #: (d, events)
    ordered: Floats
    #: (d, events + 1, words)
    before: Words

    @classmethod
    def of(cls, points: Floats) -> EventSample:
        """Index points (events, d); missing coordinates are -inf."""
        count, d = points.shape
        words = -(-count // 64)
        ordered = np.empty((d, count))
        before = np.zeros((d, count + 1, words), dtype=np.uint64)
        for j in range(d):
            order = np.argsort(points[:, j], kind="stable")
            ordered[j] = points[order, j]
            _accumulate(order, before[j])
        return cls(count, ordered, before)

    @property
    def words(self) -> int:
        return int(self.before.shape[2])

    def inside(self, lo: Floats, hi: Floats) -> Words:
        """Return (n, words): the events inside each rectangle."""
        out = np.empty((len(lo), self.words), dtype=np.uint64)
        _inside(np.ascontiguousarray(lo), np.ascontiguousarray(hi), self.ordered, self.before, out)
        return out


@dataclass(frozen=True, slots=True)
class Contents:
    """Makes and merges contents, with the parts that are given."""

    #: None: no bounding rectangles
    space: Space | None = None
    sample: EventSample | None = None

    @property
    def words(self) -> int:
        return 0 if self.sample is None else self.sample.words

    @property
    def width(self) -> int:
        return self.words + (0 if self.space is None else 2 * self.space.dimensions)

    def blank(self, *shape: int) -> Words:
        out = np.zeros((*shape, self.width), dtype=np.uint64)
        self.bounds(out)[:] = np.inf
        return out

    def bits(self, contents: Words) -> Words:
        return contents[..., : self.words]

    def bounds(self, contents: Words) -> Floats:
        """Return a view of lower bounds and negated upper bounds, (…, 2d)."""
        return contents[..., self.words :].view(np.float64)

    def box(self, content: Words) -> tuple[Floats, Floats]:
        bounds = self.bounds(content)
        d = bounds.shape[-1] // 2
        return bounds[..., :d], -bounds[..., d:]

    def events(self, contents: Words) -> Ints:
        """Return the number of events of the sample."""
        return np.asarray(np.bitwise_count(self.bits(contents)).sum(axis=-1, dtype=np.int64))

    def of(self, chunk: Chunk) -> Words:
        """Return the content of each row, (n, width)."""
        out = np.empty((len(chunk), self.width), dtype=np.uint64)
        if self.sample is not None:
            self.bits(out)[:] = self.sample.inside(chunk.lo, chunk.hi)
        if self.space is not None:
            low, high = self.space.clamp(chunk.lo, chunk.hi)
            np.concatenate([low, -high], axis=1, out=self.bounds(out))
        return out

    def scatter(self, slots: Ints, contents: Words, into: Words) -> None:
        """Merge the content of row i into into[slots[i, o]] for every o, except for negative slots."""
        _scatter_or(slots, self.bits(contents), self.bits(into))
        _scatter_minimum(slots, self.bounds(contents), self.bounds(into))

    def merge(self, into: Words, other: Words) -> None:
        np.bitwise_or(self.bits(into), self.bits(other), out=self.bits(into))
        np.minimum(self.bounds(into), self.bounds(other), out=self.bounds(into))

    def running(self, contents: Words) -> Words:
        """Return for each row of (n, width) the merged content of all rows up to it."""
        out = np.empty_like(contents)
        np.bitwise_or.accumulate(self.bits(contents), axis=0, out=self.bits(out))
        np.minimum.accumulate(self.bounds(contents), axis=0, out=self.bounds(out))
        return out


@on_first_use
def _accumulate(order: Ints, before: Words) -> None:
    for i in range(order.shape[0]):
        before[i + 1] = before[i]
        event = order[i]
        before[i + 1, event >> 6] |= np.uint64(1) << np.uint64(event & 63)


@on_first_use
def _inside(lo: Floats, hi: Floats, ordered: Floats, before: Words, out: Words) -> None:
    d, words = ordered.shape[0], out.shape[1]
    for i in range(lo.shape[0]):
        for j in range(d):
            first = np.searchsorted(ordered[j], lo[i, j], side="left")
            last = np.searchsorted(ordered[j], hi[i, j], side="right")
            lower, upper = before[j, first], before[j, last]
            if j == 0:
                for w in range(words):
                    out[i, w] = upper[w] & ~lower[w]
            else:
                for w in range(words):
                    out[i, w] &= upper[w] & ~lower[w]


@on_first_use
def _scatter_or(slots: Ints, contents: Words, into: Words) -> None:
    for i in range(contents.shape[0]):
        for slot in slots[i]:
            if slot >= 0:
                for w in range(contents.shape[1]):
                    into[slot, w] |= contents[i, w]


@on_first_use
def _scatter_minimum(slots: Ints, contents: Floats, into: Floats) -> None:
    for i in range(contents.shape[0]):
        for slot in slots[i]:
            if slot >= 0:
                for w in range(contents.shape[1]):
                    into[slot, w] = min(into[slot, w], contents[i, w])
