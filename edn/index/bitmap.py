"""The `bitmap` matcher: segments of coded rectangles, merged in the background. The default.

Rectangles are stored in segments (`edn.index.segment`). New ones go to the *tail*, a small segment with room;
a large insert becomes its own segment. A full tail is merged with all segments that are not much larger than
the merge, in a background thread that clusters and codes their rectangles again. So there are few segments,
each rectangle is moved only a few times, deleted ones disappear, and bins follow the data. A segment has only
the columns that its rectangles constrain; the tail gets a column when the first rectangle constrains it, so a
wide topic costs only its used columns.

`match` reads the tuple of segments once and needs no lock. A merge builds a new segment and swaps it in with
one assignment. Deletions during a merge are recorded and repeated on the new segment before the swap;
insertions go to a new tail, which the merge does not touch.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np

from edn.arrays import Floats, Ints
from edn.index.matcher import checked_growth, checked_ids, checked_points, checked_rectangles, duplicate_id
from edn.index.segment import TILE, Segment, gather
from edn.index.sieve import emit

#: minimal size of an insert that becomes its own segment
_BULK = 2048
#: growth after which the tail is recoded, because its first bins were chosen from few rectangles; it has no
#: more room than that, so that a topic with few rectangles takes little memory
_RECODE_FACTOR = 4
_FIRST_RECODE = 64
#: a merge includes segments of up to this multiple of its size
_TIER = 3
#: number of segments at which an insert waits for merges
_MOST_SEGMENTS = 16


@dataclass(slots=True)
class _Merge:
    """A running merge: the segments that it replaces, and the ids deleted since it began."""

    segments: tuple[Segment, ...]
    thread: threading.Thread
    deleted: list[Ints] = field(default_factory=list)


class BitmapMatcher:
    """A `Matcher`; see the module's docstring."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        #: the last one is the tail
        self._segments: tuple[Segment, ...] = (_new_tail(dimensions, np.empty(0, np.int64)),)
        self._count = 0
        #: held by the writer, and by a merge during its swap; never by `match`
        self._lock = threading.Lock()
        self._merge: _Merge | None = None

    @property
    def dimensions(self) -> int:
        return self._dimensions

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Size of the index in bytes; a merge temporarily needs about twice its part in addition."""
        return sum(segment.nbytes for segment in self._segments)

    def match(self, points: Floats) -> tuple[Ints, Ints]:
        # In this order: `grow` widens `_dimensions` first, so no point is narrower than a segment.
        segments = [segment for segment in self._segments if segment.used]
        points = checked_points(self._dimensions, points)
        starts = np.zeros(len(points) + 1, np.int64)
        hits = [segment.sieve(points, starts[1:]) for segment in segments]
        np.cumsum(starts, out=starts)
        ids = np.empty(starts[-1], np.int64)
        ends = starts[:-1].copy()
        for segment, (where, bits) in zip(segments, hits, strict=True):
            emit(where, bits, segment.ids, ends, ids)
        return starts, ids

    def insert(self, ids: Ints, lo: Floats, hi: Floats) -> None:
        ids, lo, hi = checked_rectangles(self._dimensions, ids, lo, hi)
        self._wait_for_merging()
        with self._lock:
            for segment in self._segments:
                known = segment.first_known(ids)
                if known >= 0:
                    raise duplicate_id(int(ids[known]))
            before = len(self._segments)
            if len(ids) >= _BULK:
                self._segments = (Segment.build(ids, lo, hi), *self._segments)
            else:
                self._fill_tail(ids, lo, hi)
            self._count += len(ids)
            if len(self._segments) > before:
                self._start_merge()

    def delete(self, ids: Ints) -> None:
        ids = checked_ids(ids)
        with self._lock:
            if self._merge is not None:
                self._merge.deleted.append(ids.copy())
            sparse = False
            for segment in self._segments:
                self._count -= segment.delete(ids)
                sparse = sparse or segment.is_sparse
            if sparse:
                self._start_merge()

    def grow(self, dimensions: int) -> None:
        checked_growth(self._dimensions, dimensions)
        # Segments get the new columns when a rectangle constrains them.
        self._dimensions = dimensions

    def wait_for_merges(self) -> None:
        """Waits until no merge is running. For measurements; matching never needs it."""
        while True:
            # A merge that ends may start the next one, under the lock.
            with self._lock:
                merge = self._merge
            if merge is None:
                return
            merge.thread.join()

    def _fill_tail(self, ids: Ints, lo: Floats, hi: Floats) -> None:
        more = self._segments[-1].lacks(lo, hi)
        if len(more):
            self._recode_tail(more)
        while len(ids):
            tail = self._segments[-1]
            room = tail.capacity - tail.used
            if room > 0:
                tail.append(ids[:room], lo[:room], hi[:room])
                ids, lo, hi = ids[room:], lo[room:], hi[room:]
            elif tail.used < TILE or tail.dead > tail.used // 2:
                self._recode_tail()
            else:
                self._segments = (*self._segments, _new_tail(self._dimensions, tail.columns))

    def _recode_tail(self, more: Ints | None = None) -> None:
        """Recodes the tail for its current rectangles, with additional columns."""
        tail = self._segments[-1]
        columns = tail.columns
        if more is not None:
            columns = np.concatenate([columns, more])
            if 2 * len(columns) > self._dimensions:
                # Adds all columns, to bound the number of recodings for new columns.
                columns = np.arange(self._dimensions)
        ids, lo, hi = gather([(tail, tail.alive)], self._dimensions)
        self._segments = (*self._segments[:-1], _tail_of(ids, lo, hi, columns))

    def _wait_for_merging(self) -> None:
        while len(self._segments) > _MOST_SEGMENTS and (merge := self._merge) is not None:
            merge.thread.join()

    def _start_merge(self) -> None:
        """Starts a background merge if one is due and none is running. Requires the lock."""
        if self._merge is not None:
            return
        chosen = _choose(self._segments[:-1])
        if not chosen:
            return
        # Copied under the lock: a deletion is either in the copies or recorded in the merge.
        parts = [(segment, segment.alive.copy()) for segment in chosen]
        thread = threading.Thread(target=self._run_merge, args=(parts,), name="edn-index-merge")
        try:
            thread.start()
        except RuntimeError:  # the process ends or has too many threads; unmerged segments are correct, too
            return
        self._merge = _Merge(chosen, thread)

    def _run_merge(self, parts: list[tuple[Segment, np.ndarray[tuple[int], np.dtype[np.uint64]]]]) -> None:
        merged = None
        try:
            ids, lo, hi = gather(parts, self._dimensions)
            merged = Segment.build(ids, lo, hi)
        finally:
            with self._lock:
                merge, self._merge = self._merge, None
                if merge is not None and merged is not None:
                    for ids in merge.deleted:
                        merged.delete(ids)
                    kept = tuple(segment for segment in self._segments if segment not in merge.segments)
                    self._segments = (merged, *kept) if len(merged) else kept
                    self._start_merge()


def _new_tail(dimensions: int, columns: Ints) -> Segment:
    return _tail_of(np.empty(0, np.int64), np.empty((0, dimensions)), np.empty((0, dimensions)), columns)


def _tail_of(ids: Ints, lo: Floats, hi: Floats, columns: Ints) -> Segment:
    capacity = min(TILE, max(_FIRST_RECODE, _RECODE_FACTOR * len(ids)))
    tail = Segment.build(ids, lo, hi, capacity=capacity, also=columns)
    tail.filling = True
    return tail


def _choose(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Chooses segments to merge: the smallest, and further ones not much larger than their sum."""
    chosen: list[Segment] = []
    total = 0
    due = False
    for segment in sorted(segments, key=len):
        if segment.is_sparse or not chosen or len(segment) <= _TIER * total:
            # A former tail was never clustered as a whole.
            due = due or segment.is_sparse or segment.filling or len(chosen) > 0
            chosen.append(segment)
            total += len(segment)
    return tuple(chosen) if due else ()
