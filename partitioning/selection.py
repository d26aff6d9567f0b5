"""Finds the k-th row of ordered groups, and the contents on both sides, in a few passes over unordered rows.

Theory of operation ------------------- Every row belongs to at most one *node* and has a *key* in each of
several orderings. A *group* is the rows of one node in one ordering, ordered by (key, row number). A
*target* asks for the cut after the first k rows of a group. The search has for each target an interval of
(key, row number) that contains the cut. A pass divides the intervals into bins and counts the rows of each
bin, with their smallest and largest key and their content. That determines the bin of the cut: earlier bins
are left of the cut, later ones are right of it, and the bin is the interval of the next pass, unless the cut
is on its border.

Bins are even in the key on the first pass and even in the bits of the key afterwards, so that a pass divides
any distribution by the number of bins; rows with equal keys are divided by their numbers. So there are a
dozen passes in the worst case, three or four usually, and no message grows with the number of rows. The
result does not depend on the distribution of the rows over machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from edn.arrays import Floats, Ints, Words
from partitioning.binning import BY_BITS, BY_KEY, BY_ROW, LAST_ROW, count_bins, find_bins, sortable
from partitioning.contents import Contents
from partitioning.rows import Chunk, Rows

#: limit of bins of all intervals, and limits of bins per interval
_BINS_IN_ALL = 1 << 16
_MOST_BINS = 256
_FEWEST_BINS = 8


class Keys(Protocol):
    """Finds the node of each row of a chunk, -1 for none, and its keys, (n, orderings)."""

    @property
    def orderings(self) -> int: ...

    def of(self, chunk: Chunk) -> tuple[Ints, Floats]: ...


@dataclass(frozen=True, slots=True)
class Interval:
    """Contains a cut: the rows of a group with keys from `low` to `high`, or, if these are equal, with row
    numbers from `first` to `last`."""

    group: int
    low: float
    high: float
    first: int = 0
    last: int = LAST_ROW
    #: whether `low` and `high` are bounds, not keys of rows
    wide: bool = True

    @property
    def mode(self) -> int:
        if self.wide:
            return BY_KEY
        return BY_BITS if self.low < self.high else BY_ROW


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut; rows up to (`key`, `row`) are left of it."""

    key: float
    row: int
    #: contents of the group's rows on each side
    left: Words
    right: Words


@dataclass(frozen=True, slots=True)
class _Step:
    """Result of a pass for one target: the cut, or a smaller interval."""

    cut: bool
    key: float
    row: int
    interval: Interval
    rank: int
    left: Words
    right: Words


@dataclass(frozen=True, slots=True)
class _Tally:
    """The non-empty bins of one interval."""

    bins: Ints
    counts: Ints
    least: Floats
    greatest: Floats
    first: Ints
    last: Ints
    contents: Words


@dataclass(frozen=True, slots=True)
class Pass:
    """A question whose subjects are the intervals, and whose answers are the steps of their targets."""

    keys: Keys
    contents: Contents
    #: sorted by group, then by key
    intervals: tuple[Interval, ...]
    #: ranks to find in each interval, counted from its beginning
    ranks: tuple[tuple[int, ...], ...]
    groups: int

    @property
    def bins(self) -> int:
        bins = _MOST_BINS
        while bins > _FEWEST_BINS and bins * len(self.intervals) > _BINS_IN_ALL:
            bins //= 2
        return bins

    def gather(self, chunks: Iterable[Chunk]) -> Iterator[tuple[int, _Tally]]:
        bins = self.bins
        size = len(self.intervals) * bins
        starts = np.searchsorted([one.group for one in self.intervals], np.arange(self.groups + 1))
        mode = np.array([one.mode for one in self.intervals])
        low = np.array([one.low for one in self.intervals])
        high = np.array([one.high for one in self.intervals])
        first = np.array([one.first for one in self.intervals])
        last = np.array([one.last for one in self.intervals])
        origin, shift = np.array([_origin(one, bins) for one in self.intervals], dtype=np.uint64).T.copy()
        counts = np.zeros(size, dtype=np.int64)
        least, greatest = np.full(size, np.inf), np.full(size, -np.inf)
        lowest, highest = np.full(size, LAST_ROW), np.full(size, -1)
        contents = self.contents.blank(size)
        for chunk in chunks:
            nodes, keys = self.keys.of(chunk)
            slots = np.empty(keys.shape, dtype=np.int64)
            find_bins(
                nodes, keys, chunk.rows, starts, mode, low, high, first, last, origin, shift, bins, slots
            )
            count_bins(slots, keys, chunk.rows, counts, least, greatest, lowest, highest)
            if self.contents.width:
                # Few rows are in an interval after the first pass, and contents are expensive.
                held = np.flatnonzero(slots.max(axis=1) >= 0)
                self.contents.scatter(slots[held], self.contents.of(chunk.take(held)), contents)
        for i in range(len(self.intervals)):
            used = np.flatnonzero(counts[i * bins : (i + 1) * bins])
            if len(used):
                at = i * bins + used
                parts = (counts[at], least[at], greatest[at], lowest[at], highest[at], contents[at])
                yield i, _Tally(used, *parts)

    def conclude(self, subject: int, partials: Sequence[_Tally]) -> list[_Step]:
        interval = self.intervals[subject]
        bins = self.bins
        counts = np.zeros(bins, dtype=np.int64)
        least, greatest = np.full(bins, np.inf), np.full(bins, -np.inf)
        lowest, highest = np.full(bins, LAST_ROW), np.full(bins, -1)
        contents = self.contents.blank(bins)
        for one in partials:
            counts[one.bins] += one.counts
            least[one.bins] = np.minimum(least[one.bins], one.least)
            greatest[one.bins] = np.maximum(greatest[one.bins], one.greatest)
            lowest[one.bins] = np.minimum(lowest[one.bins], one.first)
            highest[one.bins] = np.maximum(highest[one.bins], one.last)
            merged = contents[one.bins]
            self.contents.merge(merged, one.contents)
            contents[one.bins] = merged
        upto = np.cumsum(counts)
        before = np.concatenate([self.contents.blank(1), self.contents.running(contents)])
        behind = np.concatenate([self.contents.blank(1), self.contents.running(contents[::-1])])[::-1]
        steps = []
        for rank in self.ranks[subject]:
            c = int(np.searchsorted(upto, rank))
            exact = int(upto[c]) == rank
            by_row = interval.mode == BY_ROW
            steps.append(
                _Step(
                    cut=exact,
                    key=float(greatest[c]),
                    # A bin by key contains all rows with its largest key.
                    row=int(highest[c]) if by_row else LAST_ROW,
                    interval=Interval(
                        interval.group,
                        float(least[c]),
                        float(greatest[c]),
                        int(lowest[c]),
                        int(highest[c]),
                        wide=False,
                    ),
                    rank=rank - int(upto[c] - counts[c]),
                    left=before[c + 1] if exact else before[c],
                    right=behind[c + 1],
                )
            )
        return steps


def select(
    rows: Rows,
    keys: Keys,
    contents: Contents,
    spans: dict[int, tuple[float, float]],
    targets: Iterable[tuple[int, int]],
) -> dict[tuple[int, int], Cut]:
    """Return the cut of each target (group, k), 0 < k < size of the group.

    `spans` are bounds of the keys of each group; group g is node g // orderings in ordering g % orderings.
    """
    groups = max(spans) + 1
    open_targets = {
        target: (Interval(target[0], *spans[target[0]]), target[1], contents.blank(), contents.blank())
        for target in targets
    }
    cuts: dict[tuple[int, int], Cut] = {}
    while open_targets:
        sought: dict[Interval, set[int]] = {}
        for interval, rank, _, _ in open_targets.values():
            sought.setdefault(interval, set()).add(rank)
        intervals = tuple(sorted(sought, key=lambda one: (one.group, one.low, one.first)))
        ranks = tuple(tuple(sorted(sought[one])) for one in intervals)
        answers = rows.ask(Pass(keys, contents, intervals, ranks, groups))
        steps = {
            (interval, rank): step
            for i, interval in enumerate(intervals)
            for rank, step in zip(ranks[i], answers[i], strict=True)
        }
        for target, (interval, rank, left, right) in list(open_targets.items()):
            step = steps[interval, rank]
            left, right = left.copy(), right.copy()
            contents.merge(left, step.left)
            contents.merge(right, step.right)
            if step.cut:
                cuts[target] = Cut(step.key, step.row, left, right)
                del open_targets[target]
            else:
                # Row numbers matter only among equal keys; without them equal intervals are one.
                found = step.interval
                if found.low < found.high:
                    found = replace(found, first=0, last=LAST_ROW)
                open_targets[target] = (found, step.rank, left, right)
    return cuts


def _origin(interval: Interval, bins: int) -> tuple[int, int]:
    """Return the first integer of the bins in this interval's mode, and the number of low bits of a bin."""
    if interval.mode == BY_KEY:
        return 0, 0
    if interval.mode == BY_BITS:
        start, end = (int(x) for x in sortable(np.array([interval.low, interval.high])))
    else:
        start, end = interval.first, interval.last
    return start, max(0, (end - start).bit_length() - (bins.bit_length() - 1))
